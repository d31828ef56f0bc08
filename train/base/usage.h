// Reads what a user types: numbers, switches and names, strictly and never through the locale; and the error for wrong
// usage. Pure functions, callable from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace tril {

// Wrong usage, a mistake in the command and not in what it works on: exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void fail_usage(std::string_view where, std::string_view expected, std::string_view got,
                             std::string_view mend = {});

// The whole number that a text writes, in any form: 3000, 3.0, 3e3 or 30e-1; exactly, by its digits. None if it is no
// number, not whole, or beyond 64 bits. Every whole number that a person or another program wrote is read here.
[[nodiscard]] std::optional<int64_t> whole_number(std::string_view text);

// Reads the whole text as a number within [least, most], or throws UsageError, which points out a decimal comma.
// `where` is the flag or the field.
[[nodiscard]] int64_t parse_integer(std::string_view where, std::string_view text, int64_t least, int64_t most);
[[nodiscard]] double parse_number(std::string_view where, std::string_view text, double least, double most);
// Reads "true" or "false".
[[nodiscard]] bool parse_switch(std::string_view where, std::string_view text);

// The known name that is fewest edits away, or empty if none is near.
[[nodiscard]] std::string_view nearest(std::string_view name, std::span<const std::string_view> known);
// "did you mean X?", or `otherwise` if no name is near.
[[nodiscard]] std::string did_you_mean(std::string_view name, std::span<const std::string_view> known,
                                       std::string_view otherwise = {});

}  // namespace tril
