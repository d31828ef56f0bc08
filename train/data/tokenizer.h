// Turns text into tokens and back: one token for each character (a Unicode code point), or one for each byte.
// A Tokenizer is an immutable value kept in the model's file; any thread may use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/base/utf8.h"

namespace tril {

enum class TokenKind { kChar, kByte };

[[nodiscard]] std::string_view token_kind_name(TokenKind kind);  // "char" or "byte", as in --tokens
[[nodiscard]] TokenKind parse_token_kind(std::string_view name, std::string_view where);

class Tokenizer {
 public:
  // All 256 bytes, so that no text has an unknown one.
  [[nodiscard]] static Tokenizer bytes();
  // The characters of `text`, by rising code point. `where` is its name in errors: the text must be UTF-8, not empty.
  [[nodiscard]] static Tokenizer characters_of(std::string_view text, std::string_view where);
  [[nodiscard]] static Tokenizer make(TokenKind kind, std::string_view text, std::string_view where);

  // {"tokens":"byte"}, or {"tokens":"char","chars":"…"} with the characters in the order of their tokens.
  [[nodiscard]] static Tokenizer from_json(std::string_view json, std::string_view where);
  [[nodiscard]] std::string to_json() const;

  [[nodiscard]] TokenKind kind() const { return kind_; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(chars_.size()); }
  // The token of a character (or of a byte), where there is one.
  [[nodiscard]] std::optional<int32_t> find(char32_t value) const;
  // What sampling begins with when there is no prompt: a new line, or else the first token.
  [[nodiscard]] int32_t start_token() const;

  // Calls emit(token) for each token in turn. Characters without a token are an error, which names up to five of them.
  // Text up to the token's last byte is not read again, so emit may overwrite it.
  template <class Emit>
  void encode_each(std::string_view text, std::string_view where, Emit&& emit) const;
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, std::string_view where) const;

  // Appends the token's UTF-8 (or its byte). Cut bytes into characters with a Utf8Stream when showing them.
  void decode(int32_t token, std::string& out) const;
  [[nodiscard]] std::string decode(std::span<const int32_t> tokens) const;

  bool operator==(const Tokenizer&) const = default;

 private:
  Tokenizer(TokenKind kind, std::vector<char32_t> chars);
  [[noreturn]] void refuse_unknown(std::string_view rest, int64_t position, std::string_view where) const;

  TokenKind kind_;
  std::vector<char32_t> chars_;  // by token
  std::vector<int32_t> tokens_;  // by code point, up to the highest there is; -1 for none
};

template <class Emit>
void Tokenizer::encode_each(std::string_view text, std::string_view where, Emit&& emit) const {
  if (kind_ == TokenKind::kByte) {
    for (const char byte : text) emit(static_cast<int32_t>(static_cast<unsigned char>(byte)));
    return;
  }
  int64_t position = 0;
  for (size_t at = 0; at < text.size(); ++position) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.fault != Utf8Fault::kNone) refuse_utf8(text, at, where);
    const int32_t token = c.code_point < tokens_.size() ? tokens_[c.code_point] : -1;
    if (token < 0) refuse_unknown(text.substr(at), position, where);
    at += static_cast<size_t>(c.length);
    emit(token);
  }
}

}  // namespace tril
