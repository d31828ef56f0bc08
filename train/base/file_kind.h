// Recognises a file's kind by its first bytes, for messages to users who gave the wrong kind of file. Any thread may
// call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tril {

enum class FileKind : uint8_t { kEmpty, kText, kSafetensors, kPyTorch, kOtherModel, kOther, kUnknown };

struct KnownFile {
  FileKind kind;
  std::string_view what;  // with its article: "a PNG image"
};

// How many bytes at a file's start tell its kind, or all of a shorter file.
inline constexpr int64_t kTellingBytes = 4096;
[[nodiscard]] KnownFile kind_of(std::string_view beginning);
[[nodiscard]] KnownFile read_kind(const std::string& path);

// Throws if the bytes begin like a kind of file that is not text, or if they are not UTF-8.
void check_text(std::string_view bytes, std::string_view where);

// Reads a whole file that should hold JSON. Throws, naming `wanted`, if it is not text, and above `limit` bytes.
[[nodiscard]] std::string read_json_file(const std::string& path, int64_t limit, std::string_view wanted);

}  // namespace tril
