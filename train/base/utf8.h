// UTF-8: one decoder for everything that reads text, and what is built on it. Pure functions, callable from any thread;
// a Utf8Stream belongs to whoever prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tril {

enum class Utf8Fault : uint8_t {
  kNone,
  kLoneContinuation,     // 80…BF with no lead byte before it
  kBadLead,              // F8…FF never occur
  kMissingContinuation,  // a lead byte, then something else
  kOverlong,             // a longer form than needed, such as C0 AF
  kSurrogate,            // U+D800…U+DFFF
  kTooLarge,             // above U+10FFFF
  kTruncated,            // valid so far, but the text ends
};

struct Utf8Char {
  char32_t code_point;
  // Bytes taken; for a fault, those that one U+FFFD replaces (the longest start of a character, at least one byte).
  int length;
  Utf8Fault fault;
};

[[nodiscard]] Utf8Char decode_multibyte(std::string_view text, size_t at);

// The character that begins at text[at]; `at` is inside the text.
[[nodiscard]] inline Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  return first < 0x80 ? Utf8Char{first, 1, Utf8Fault::kNone} : decode_multibyte(text, at);
}

// The offset of the first byte from `at` on that is not ASCII, else the text's size. Most texts are almost all ASCII,
// so a search for faults is faster with it.
[[nodiscard]] size_t skip_ascii(std::string_view text, size_t at);

// Which valid characters exist: all code points but the surrogates.
[[nodiscard]] bool is_unicode_scalar(uint64_t code_point);

void append_utf8(std::string& out, char32_t code_point);

[[nodiscard]] bool is_utf8(std::string_view text);

// Throws unless the text is UTF-8, naming the first wrong byte; `where` is the file or the flag it came from.
void check_utf8(std::string_view text, std::string_view where);
// The error for the fault at text[at]: the byte, its offset and the way out.
[[noreturn]] void refuse_utf8(std::string_view text, size_t at, std::string_view where);

// "U+0064", at least four digits.
[[nodiscard]] std::string code_point_name(char32_t code_point);

// The text as an error message can show it: control and invisible characters as \u202a, stray bytes as \x92.
[[nodiscard]] std::string printable(std::string_view text);
// At most `characters` of it, then "…".
[[nodiscard]] std::string printable(std::string_view text, size_t characters);

// A text of whole characters as a terminal may get it. What would steer the terminal is escaped, as \u001b: C0 except
// tab, LF and CRLF; DEL; C1; marks and overrides of direction. Stray bytes become \x92.
[[nodiscard]] std::string without_controls(std::string_view text);

// Turns pieces of bytes, cut anywhere, into whole characters; what is not UTF-8 comes out as U+FFFD.
class Utf8Stream {
 public:
  // Appends the characters that are complete.
  void push(std::string_view bytes, std::string& out);
  // For the end of the text: an unfinished character becomes U+FFFD.
  void flush(std::string& out);

 private:
  std::string pending_;  // an unfinished character, at most three bytes between calls
};

}  // namespace tril
