#include "train/base/utf8.h"

#include <cstring>

#include "core/base/check.h"

namespace tril {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The lead byte decides how many bytes follow and what the second one may be; that range shuts out overlong forms,
// surrogates and everything above U+10FFFF.
struct Lead {
  int follow;
  unsigned char low, high;
  Utf8Fault below, above;  // the fault of a continuation byte below `low` or above `high`
};

Lead lead_of(unsigned char first) {
  constexpr auto kNone = Utf8Fault::kNone;
  if (first < 0xE0) return {1, 0x80, 0xBF, kNone, kNone};
  if (first == 0xE0) return {2, 0xA0, 0xBF, Utf8Fault::kOverlong, kNone};
  if (first == 0xED) return {2, 0x80, 0x9F, kNone, Utf8Fault::kSurrogate};
  if (first < 0xF0) return {2, 0x80, 0xBF, kNone, kNone};
  if (first == 0xF0) return {3, 0x90, 0xBF, Utf8Fault::kOverlong, kNone};
  if (first == 0xF4) return {3, 0x80, 0x8F, kNone, Utf8Fault::kTooLarge};
  return {3, 0x80, 0xBF, kNone, kNone};
}

std::string hex(uint32_t value, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[value >> shift & 15];
  return out;
}

bool is_invisible(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0xAD || c == 0x61C || c == 0x180E ||
         (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE0FFF);
}

// Whether it moves the cursor, begins a command, or changes the direction of the text after it.
bool steers_terminal(char32_t c) {
  const bool control = (c < 0x20 && c != '\t') || (c >= 0x7F && c <= 0x9F);
  const bool direction =
      c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return control || direction;
}

std::string_view reason(Utf8Fault fault) {
  switch (fault) {
    case Utf8Fault::kNone: break;
    case Utf8Fault::kLoneContinuation: return "a continuation byte with no lead byte";
    case Utf8Fault::kBadLead: return "never part of UTF-8";
    case Utf8Fault::kMissingContinuation: return "a lead byte with no continuation byte after it";
    case Utf8Fault::kOverlong: return "an overlong form";
    case Utf8Fault::kSurrogate: return "a surrogate";
    case Utf8Fault::kTooLarge: return "above U+10FFFF";
    case Utf8Fault::kTruncated: return "the text ends inside a character";
  }
  return "valid";
}

}  // namespace

Utf8Char decode_multibyte(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1, Utf8Fault::kNone};
  if (first < 0xC0) return {kReplacement, 1, Utf8Fault::kLoneContinuation};
  if (first < 0xC2) return {kReplacement, 1, Utf8Fault::kOverlong};
  if (first > 0xF4) return {kReplacement, 1, first < 0xF8 ? Utf8Fault::kTooLarge : Utf8Fault::kBadLead};

  const Lead lead = lead_of(first);
  auto code_point = static_cast<char32_t>(first & (0x3F >> lead.follow));
  for (int i = 1; i <= lead.follow; ++i) {
    if (at + static_cast<size_t>(i) >= text.size()) return {kReplacement, i, Utf8Fault::kTruncated};
    const unsigned char next = byte(at + static_cast<size_t>(i));
    if ((next & 0xC0) != 0x80) return {kReplacement, i, Utf8Fault::kMissingContinuation};
    if (i == 1 && next < lead.low) return {kReplacement, 1, lead.below};
    if (i == 1 && next > lead.high) return {kReplacement, 1, lead.above};
    code_point = code_point << 6 | (next & 0x3F);
  }
  return {code_point, lead.follow + 1, Utf8Fault::kNone};
}

size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  for (uint64_t eight = 0; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & kHighBits) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

bool is_unicode_scalar(uint64_t code_point) {
  return code_point < 0xD800 || (code_point > 0xDFFF && code_point <= 0x10FFFF);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  const auto tail = [&](int shift) { put(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), tail(0);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), tail(6), tail(0);
  } else {
    put(0xF0 | c >> 18), tail(12), tail(6), tail(0);
  }
}

bool is_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.fault != Utf8Fault::kNone) return false;
    at = skip_ascii(text, at + static_cast<size_t>(c.length));
  }
  return true;
}

void check_utf8(std::string_view text, std::string_view where) {
  for (size_t at = skip_ascii(text, 0); at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.fault != Utf8Fault::kNone) refuse_utf8(text, at, where);
    at = skip_ascii(text, at + static_cast<size_t>(c.length));
  }
}

void refuse_utf8(std::string_view text, size_t at, std::string_view where) {
  const bool utf16 = at == 0 && (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"));
  fail(where, "UTF-8 text",
       cat("byte 0x", hex(static_cast<unsigned char>(text[at]), 2), " at offset ", at, " (",
           reason(decode_utf8(text, at).fault), ")"),
       utf16 ? "this is UTF-16: convert it (iconv -f UTF-16 -t UTF-8), or use --tokens byte"
             : "convert it to UTF-8 (iconv) or leave it out; models trained with --tokens byte take bytes as they are");
}

std::string code_point_name(char32_t code_point) {
  std::string digits = hex(code_point, code_point > 0xFFFFF ? 6 : code_point > 0xFFFF ? 5 : 4);
  for (char& digit : digits) {
    if (digit >= 'a') digit = static_cast<char>(digit - 'a' + 'A');
  }
  return "U+" + digits;
}

std::string printable(std::string_view text, size_t characters) {
  std::string out;
  for (size_t at = 0; at < text.size(); --characters) {
    if (characters == 0) return out + "…";
    const Utf8Char c = decode_utf8(text, at);
    const std::string_view bytes = text.substr(at, static_cast<size_t>(c.length));
    if (c.fault != Utf8Fault::kNone) {
      for (const char byte : bytes) out += "\\x" + hex(static_cast<unsigned char>(byte), 2);
    } else if (is_invisible(c.code_point)) {
      out += c.code_point > 0xFFFF ? "\\U" + hex(c.code_point, 8) : "\\u" + hex(c.code_point, 4);
    } else {
      out += bytes;
    }
    at += bytes.size();
  }
  return out;
}

std::string printable(std::string_view text) { return printable(text, text.size()); }

std::string without_controls(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const std::string_view bytes = text.substr(at, static_cast<size_t>(c.length));
    const bool line_end = bytes == "\n" || text.substr(at, 2) == "\r\n";
    const bool steers = c.fault != Utf8Fault::kNone || (steers_terminal(c.code_point) && !line_end);
    out += steers ? printable(bytes) : std::string(bytes);
    at += bytes.size();
  }
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  pending_ += bytes;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Char c = decode_utf8(pending_, at);
    if (c.fault == Utf8Fault::kTruncated) break;
    append_utf8(out, c.code_point);
    at += static_cast<size_t>(c.length);
  }
  pending_.erase(0, at);
}

void Utf8Stream::flush(std::string& out) {
  if (!pending_.empty()) append_utf8(out, kReplacement);
  pending_.clear();
}

}  // namespace tril
