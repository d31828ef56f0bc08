// What a file is by how it begins, for messages to those who gave another than was asked for. Pure functions but for
// read_kind; any thread may call.
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

// From this many bytes at a file's start, or all of a shorter one.
inline constexpr int64_t kTellingBytes = 4096;
[[nodiscard]] KnownFile kind_of(std::string_view beginning);
[[nodiscard]] KnownFile read_kind(const std::string& path);

// Throws where the bytes are, by their beginning, of a kind that is no text, or are not UTF-8.
void check_text(std::string_view bytes, std::string_view where);

// The whole file, which is to hold JSON and thus text; `wanted` says what it should be.
[[nodiscard]] std::string read_json_file(const std::string& path, int64_t limit, std::string_view wanted);

}  // namespace tril
