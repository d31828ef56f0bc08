// The JSON inside tril's own files, read strictly: objects, arrays, strings and unsigned integers, nothing else.
// The caller asks for what its format has next, so a file can neither nest deeper nor hold more than that, no tree is
// built, and nothing is allocated but the strings asked for. (A general parser accepts a byte order mark, ends at a
// NUL and quotes megabytes in its errors; for configuration that people write it is the right tool, here it is not.)
// A JsonReader is used by the thread that made it and views the text it was given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tril {

class JsonReader {
 public:
  // Refuses text that is not UTF-8. `where` begins every error.
  JsonReader(std::string_view text, std::string where);

  // member(key) must read the value. Repeated keys are the caller's to refuse.
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

// How all JSON is written: on one line, or with `indent` blanks a level; no new line at the end. What is not UTF-8
// becomes U+FFFD. Escaped are, besides what JSON demands, what breaks lines or steers terminals where JSON is read line
// by line: DEL, the C1 controls (U+0085 among them), U+2028 and U+2029.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace tril
