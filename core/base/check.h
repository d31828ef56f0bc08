// The room core/base: what everything else stands on: errors, element types, shapes, random numbers.

// Errors. Everything a user can get wrong ends in a tril::Error whose text is one line:
//   where: expected X, got Y; how to mend it
// `where` is the op, module or configuration field. Input is checked with TRIL_CHECK, never with assert.
#pragma once

#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tril {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, char c) { out += c; }

// Numbers never pass through the locale: 0.1 stays "0.1" under a decimal comma.
template <class Number>
requires(std::integral<Number> || std::floating_point<Number>) void append(std::string& out, Number value) {
  if (value != value) return append(out, std::string_view("nan"));  // without a sign: that of a NaN means nothing
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

// The parts, written one after the other. A type joins in by offering `append(std::string&, const Type&)` in its
// namespace.
template <class... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

[[noreturn]] inline void fail(std::string_view where, std::string_view expected, std::string_view got,
                              std::string_view mend = {}) {
  throw Error(mend.empty() ? cat(where, ": expected ", expected, ", got ", got)
                           : cat(where, ": expected ", expected, ", got ", got, "; ", mend));
}

}  // namespace tril

// The texts are built only when the condition fails.
#define TRIL_CHECK(condition, where, ...) \
  do {                                    \
    if (!(condition)) [[unlikely]]        \
      ::tril::fail(where, __VA_ARGS__);   \
  } while (false)
