#include "train/base/json_text.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

constexpr int64_t kMaxInteger = int64_t{1} << 53;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Appends what begins at text[at] and returns how many bytes it took: a whole character as an escape if it breaks lines
// or steers a terminal although JSON allows it, else one byte as it is.
size_t append_unbroken(std::string& out, std::string_view text, size_t at) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const auto escape = [&](const char* high, unsigned low) {
    out += "\\u";
    out += high;
    out += {kDigits[low >> 4 & 15], kDigits[low & 15]};
  };
  if (byte(0) == 0x7F) return escape("00", 0x7F), 1;
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) return escape("00", byte(1)), 2;
  const bool separator = byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9);
  if (separator) return escape("20", byte(2) - 0x80), 3;
  out += text[at];
  return 1;
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {
  for (size_t at = skip_ascii(text, 0); at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    TRIL_CHECK(c.fault == Utf8Fault::kNone, where_, "UTF-8", cat("an invalid byte at offset ", at));
    at = skip_ascii(text, at + static_cast<size_t>(c.length));
  }
}

std::string JsonReader::string() {
  expect('"');
  std::string out;
  for (;;) {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20) {
      ++at_;
    }
    out += text_.substr(start, at_ - start);
    if (at_ == text_.size()) refuse("the end of a string");
    if (text_[at_] == '"') break;
    if (text_[at_] != '\\') refuse("a control character written as an escape");
    ++at_;
    append_utf8(out, escape());
  }
  ++at_;
  return out;
}

char32_t JsonReader::escape() {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (at_ < text_.size()) {
    const size_t letter = kLetters.find(text_[at_]);
    if (letter != std::string_view::npos) {
      ++at_;
      return static_cast<unsigned char>(kMeanings[letter]);
    }
    if (text_[at_] == 'u') {
      ++at_;
      const char32_t first = four_hex_digits();
      if (is_unicode_scalar(first)) return first;
      if (first < 0xDC00 && text_.substr(at_, 2) == "\\u") {
        at_ += 2;
        const char32_t second = four_hex_digits();
        if (second >= 0xDC00 && second <= 0xDFFF) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
      }
      refuse("surrogates in pairs");
    }
  }
  refuse("an escape that JSON knows");
}

char32_t JsonReader::four_hex_digits() {
  uint32_t value = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || stop - digits.data() != 4) refuse("four hexadecimal digits");
  at_ += 4;
  return value;
}

int64_t JsonReader::unsigned_integer() {
  skip_space();
  size_t stop = at_;
  while (stop < text_.size() && is_digit(text_[stop])) ++stop;
  const std::string_view digits = text_.substr(at_, stop - at_);
  const std::string_view rest = text_.substr(stop, 1);
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0') || rest == "." || rest == "e" || rest == "E") {
    refuse("an unsigned integer");
  }
  int64_t value = 0;
  const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), value).ec;
  if (error != std::errc{} || value > kMaxInteger) refuse("an integer of at most 2^53");
  at_ = stop;
  return value;
}

void JsonReader::end() {
  skip_space();
  if (at_ != text_.size()) refuse("nothing after the object");
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
}

bool JsonReader::accept(char c) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!accept(c)) refuse(cat("'", c, "'"));
}

void JsonReader::refuse(std::string_view expected) const {
  // Shows only a little: what is there may be megabytes long, or end inside a character.
  fail(where_, cat(expected, " at byte ", at_),
       at_ < text_.size() ? cat("'", printable(text_.substr(at_, 96), 24), "'") : "the end of the text");
}

// Outside of strings JSON is ASCII without controls, so such characters are always inside strings, where escapes may
// be.
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  const std::string json = value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size());
  for (size_t at = 0; at < json.size();) at += append_unbroken(out, json, at);
  return out;
}

}  // namespace tril
