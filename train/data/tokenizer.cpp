#include "train/data/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "train/base/json_text.h"

namespace tril {

std::string_view token_kind_name(TokenKind kind) { return kind == TokenKind::kByte ? "byte" : "char"; }

TokenKind parse_token_kind(std::string_view name, std::string_view where) {
  if (name == "char") return TokenKind::kChar;
  TRIL_CHECK(name == "byte", where, "char or byte", cat("'", printable(name, 40), "'"));
  return TokenKind::kByte;
}

Tokenizer::Tokenizer(TokenKind kind, std::vector<char32_t> chars) : kind_(kind), chars_(std::move(chars)) {
  tokens_.assign(static_cast<size_t>(*std::max_element(chars_.begin(), chars_.end())) + 1, -1);
  for (size_t token = 0; token < chars_.size(); ++token) tokens_[chars_[token]] = static_cast<int32_t>(token);
}

Tokenizer Tokenizer::bytes() {
  std::vector<char32_t> all(256);
  for (size_t byte = 0; byte < all.size(); ++byte) all[byte] = static_cast<char32_t>(byte);
  return Tokenizer(TokenKind::kByte, std::move(all));
}

Tokenizer Tokenizer::characters_of(std::string_view text, std::string_view where) {
  TRIL_CHECK(!text.empty(), where, "a text", "an empty one");
  std::vector<char> seen(0x110000);  // one byte each: this loop reads the whole text
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.fault != Utf8Fault::kNone) refuse_utf8(text, at, where);
    seen[c.code_point] = 1;
    at += static_cast<size_t>(c.length);
  }
  std::vector<char32_t> chars;
  for (size_t code_point = 0; code_point < seen.size(); ++code_point) {
    if (seen[code_point] != 0) chars.push_back(static_cast<char32_t>(code_point));
  }
  return Tokenizer(TokenKind::kChar, std::move(chars));
}

Tokenizer Tokenizer::make(TokenKind kind, std::string_view text, std::string_view where) {
  return kind == TokenKind::kByte ? bytes() : characters_of(text, where);
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where) {
  std::optional<std::string> kind, chars;
  JsonReader reader(json, std::string(where));
  reader.object([&](const std::string& key) {
    std::optional<std::string>* const field = key == "tokens" ? &kind : key == "chars" ? &chars : nullptr;
    TRIL_CHECK(field != nullptr, where, "tokens and chars", cat("'", printable(key, 40), "'"));
    TRIL_CHECK(!field->has_value(), where, cat("one ", key), "two");
    *field = reader.string();
  });
  reader.end();
  TRIL_CHECK(kind.has_value(), where, "tokens, which is char or byte", "none");
  if (parse_token_kind(*kind, where) == TokenKind::kByte) {
    TRIL_CHECK(!chars.has_value(), where, "no chars beside bytes as tokens", "some");
    return bytes();
  }
  TRIL_CHECK(chars.has_value() && !chars->empty(), where, "the characters of the vocabulary", "none");

  std::vector<char32_t> list;
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < chars->size();) {  // UTF-8, as the JSON reader has checked
    const Utf8Char c = decode_utf8(*chars, at);
    TRIL_CHECK(!seen[c.code_point], where, cat("each character once, ", code_point_name(c.code_point), " too"),
               "it twice");
    seen[c.code_point] = true;
    list.push_back(c.code_point);
    at += static_cast<size_t>(c.length);
  }
  return Tokenizer(TokenKind::kChar, std::move(list));
}

std::string Tokenizer::to_json() const {
  if (kind_ == TokenKind::kByte) return R"({"tokens":"byte"})";
  std::string all;
  for (const char32_t c : chars_) append_utf8(all, c);
  return json_text({{"tokens", "char"}, {"chars", all}});
}

std::optional<int32_t> Tokenizer::find(char32_t value) const {
  if (value >= tokens_.size() || tokens_[value] < 0) return std::nullopt;
  return tokens_[value];
}

int32_t Tokenizer::start_token() const { return find(U'\n').value_or(0); }

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::string_view where) const {
  std::vector<int32_t> out;
  out.reserve(text.size());
  encode_each(text, where, [&](int32_t token) { out.push_back(token); });
  return out;
}

void Tokenizer::decode(int32_t token, std::string& out) const {
  TRIL_CHECK(token >= 0 && token < size(), "decode", cat("a token from 0 to ", size() - 1), cat(token));
  const char32_t value = chars_[static_cast<size_t>(token)];
  if (kind_ == TokenKind::kByte) {
    out += static_cast<char>(static_cast<unsigned char>(value));
  } else {
    append_utf8(out, value);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string out;
  for (const int32_t token : tokens) decode(token, out);
  return out;
}

void Tokenizer::refuse_unknown(std::string_view rest, int64_t position, std::string_view where) const {
  constexpr size_t kShown = 5;
  std::set<char32_t> unknown;
  std::string list;
  for (size_t at = 0; at < rest.size(); ++position) {
    const Utf8Char c = decode_utf8(rest, at);
    const std::string_view bytes = rest.substr(at, static_cast<size_t>(c.length));
    at += bytes.size();
    if (c.fault != Utf8Fault::kNone || find(c.code_point) || !unknown.insert(c.code_point).second) continue;
    if (unknown.size() > kShown) continue;
    list += cat(list.empty() ? "'" : ", '", printable(bytes), "' (", code_point_name(c.code_point), ") at position ",
                position);
  }
  if (unknown.size() > kShown) list += cat(" and ", unknown.size() - kShown, " other");
  fail(where, cat("only the ", size(), " characters that the model was trained on"), list,
       "leave them out or replace them; a model trained with --tokens byte takes any text");
}

}  // namespace tril
