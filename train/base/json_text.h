// A strict reader for the JSON inside tril's own files: objects, arrays, strings and unsigned integers, nothing else.
// The caller asks for what its format has next. So a file can neither nest deeper nor hold more than that, no tree is
// built, and only the strings asked for are allocated. (A general parser accepts a byte order mark, ends at a NUL and
// quotes megabytes in its errors. It is right for configuration that people write, but not here.) A JsonReader is used
// by the thread that made it, and the text must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tril {

class JsonReader {
 public:
  // Throws if the text is not UTF-8. `where` begins every error.
  JsonReader(std::string_view text, std::string where);

  // member(key) must read the value. The caller must refuse repeated keys.
  template <class Member>
  void object(Member&& member) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string key = string();
      expect(':');
      member(key);
    } while (accept(','));
    expect('}');
  }

  // element() must read one value.
  template <class Element>
  void array(Element&& element) {
    expect('[');
    if (accept(']')) return;
    do { element(); } while (accept(','));
    expect(']');
  }

  [[nodiscard]] std::string string();
  // Digits only: no sign, no fraction, no exponent, no leading zero; at most 2^53, which every reader holds exactly.
  [[nodiscard]] int64_t unsigned_integer();
  // Nothing but white space may follow.
  void end();

 private:
  void skip_space();
  [[nodiscard]] bool accept(char c);
  void expect(char c);
  [[nodiscard]] char32_t escape();
  [[nodiscard]] char32_t four_hex_digits();
  [[noreturn]] void refuse(std::string_view expected) const;

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
};

// Writes JSON as all of tril does: on one line, or with `indent` spaces a level, without a line feed at the end. Bytes
// that are not UTF-8 become U+FFFD. Besides what JSON demands, characters that would break lines or steer a terminal
// are escaped: DEL, the C1 controls (with U+0085), U+2028 and U+2029.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace tril
