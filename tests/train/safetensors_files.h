// Safetensors files for tests, made by hand and by our writer, and short ways to parse them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/model/safetensors.h"
#include "train/temp_folder.h"

namespace tril::test {

[[nodiscard]] inline std::string little_endian(uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
  return out;
}

[[nodiscard]] inline std::string file_of(const std::string& header, const std::string& data) {
  return little_endian(header.size()) + header + data;
}

[[nodiscard]] inline Safetensors parse(std::string_view file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

[[nodiscard]] inline std::string refusal(std::string_view file) {
  return error_of([&] { (void)parse(file); });
}

// The header of the reference's smallest file; 16 bytes of data follow.
inline const std::string kTestHeader = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";

// The 171 bytes whose SHA-256 is ef7c98014937b927861b0d9443a622ed907453c2220a8cb6d2e888cb8d034e2e.
[[nodiscard]] inline std::string known_file() {
  std::string header = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}}  )";
  using namespace std::string_literals;
  return little_endian(144) + header + "\0\0\x80\x3F\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\x07\x08\x09"s;
}

inline const std::array<float, 4> kFloats{1, 2, 3, 4};
inline const std::array<unsigned char, 3> kBytes{7, 8, 9};

// The same content as our writer has it, which adds the checksum.
[[nodiscard]] inline std::string written_file() {
  const TempFolder folder;
  const std::string path = folder / "f";
  const std::vector<SafetensorsTensor> tensors{{"b", "U8", {3}, kBytes.data()}, {"a", "F32", {2, 2}, kFloats.data()}};
  write_safetensors(path, tensors);
  return contents_of(path);
}

// The same tensors and, but for keys that no reader knows, the same metadata.
[[nodiscard]] inline bool same_values(const Safetensors& a, const Safetensors& b) {
  const auto same = [](const SafetensorsEntry& x, const SafetensorsEntry& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.begin == y.begin && x.end == y.end;
  };
  return std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), same) && a.data == b.data &&
         a.metadata.at("format") == "pt" && b.metadata.at("format") == "pt";
}

}  // namespace tril::test
