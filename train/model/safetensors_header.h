// What reading and writing safetensors share: the header as text and as values, and the rules both sides obey.
// Internal to train/model/safetensors*.cpp. Pure functions, callable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/model/safetensors.h"

namespace tril::safetensors {

constexpr int64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxTensors = 1'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kChecksumKey = "tril.crc32";

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;
};

// A type's place in the format's list, which rises with its size, or -1.
[[nodiscard]] int dtype_rank(std::string_view dtype);

// Throws unless a tensor may have this name.
void check_name(std::string_view name, std::string_view where);

// The bytes that such a tensor takes. Throws if the number overflows.
[[nodiscard]] int64_t byte_size(const SafetensorsEntry& entry, std::string_view where);

// Reads the JSON and checks all there is to check without the data, `data_bytes` of which follow the header.
[[nodiscard]] Header parse_header(std::string_view text, int64_t data_bytes, std::string_view where);

// The JSON, padded with spaces so that the data begin at a multiple of 8.
[[nodiscard]] std::string header_text(const Header& header);

// The checksum as "tril.crc32" holds it. `data` are the pieces the data consist of, in the file's order.
[[nodiscard]] std::string checksum(const Header& header, std::span<const std::span<const std::byte>> data);

}  // namespace tril::safetensors
