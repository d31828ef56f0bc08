// Reads and writes safetensors files, the format Python exchanges weights in:
//   8 bytes, the header's length (little endian) · the header, JSON · the tensors' bytes, little endian, row-major.
// A file is not trusted until it keeps every rule of the format, and a few of ours: no repeated name or unknown key, no
// control character in a name, a rank of at most 64. Files are read whole and never mapped, since a mapped file that
// shrinks kills the process. Values here belong to the caller; any thread may call.
//
// Files of ours carry a CRC-32 in the metadata key "tril.crc32" (eight lower-case hexadecimal digits), verified when
// read; files without it load as well. It is computed over the following, with each number as 8 bytes little endian and
// each text as its length and its bytes:
//   the number of other metadata pairs, then each pair by rising key;
//   the number of tensors, then of each by rising name: name, dtype, rank, dimensions, begin, end;
//   all data bytes in the file's order, with no length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tril {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written in the file: "F32", "BF16", …
  std::vector<int64_t> shape;
  int64_t begin = 0;  // its bytes in Safetensors::data, which need not be aligned
  int64_t end = 0;
};

struct Safetensors {
  std::string where;                            // the file's name, for messages
  std::map<std::string, std::string> metadata;  // without "tril.crc32"
  bool verified = false;                        // the file has a checksum, and it is right
  std::vector<SafetensorsEntry> entries;        // in the order of their bytes
  std::vector<std::byte> data;

  // Null if there is no entry of that name.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
};

[[nodiscard]] Safetensors read_safetensors(const std::string& path);
// The same from memory; `where` stands for the path in messages.
[[nodiscard]] Safetensors parse_safetensors(std::span<const std::byte> file, std::string_view where);

// Copies the entry's values, from F32, F64, F16 or BF16. `out` must have as many elements as the entry.
void load_as_f32(const Safetensors& file, const SafetensorsEntry& entry, std::span<float> out);

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // borrowed for the call, contiguous, row-major
};

// Writes the file atomically (train/base/files.h), as the reference writer orders it: the widest type first, then by
// name. The metadata gains "format": "pt", which other readers ask for, and the checksum.
void write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                       std::map<std::string, std::string> metadata = {});

}  // namespace tril
