#include "train/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/base/check.h"
#include "train/base/files.h"
#include "train/base/utf8.h"
#include "train/model/safetensors_header.h"

namespace tril {
namespace {

using namespace safetensors;

static_assert(std::endian::native == std::endian::little, "the format is little endian, and so is this code");

constexpr int64_t kLengthBytes = 8;

// The header's length, checked against the file's.
int64_t header_length(const std::byte (&bytes)[kLengthBytes], int64_t file_size, std::string_view where) {
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof length);
  TRIL_CHECK(length <= uint64_t{kMaxHeader}, where,
             cat("a safetensors file, with a header of at most ", kMaxHeader, " bytes"),
             "a file that does not begin with a header's length", "it is of another kind, or damaged");
  TRIL_CHECK(static_cast<int64_t>(length) <= file_size - kLengthBytes, where,
             cat("a safetensors header of ", length, " bytes"), cat("a file of ", file_size),
             "the file is cut short, or is not a safetensors file");
  return static_cast<int64_t>(length);
}

void check_length(int64_t file_size, std::string_view where) {
  TRIL_CHECK(file_size >= kLengthBytes, where, "a safetensors file of at least 8 bytes", cat(file_size));
}

Safetensors assemble(Header header, std::vector<std::byte> data, std::string_view where) {
  Safetensors file{std::string(where), {}, false, {}, std::move(data)};
  if (const auto stored = header.metadata.find(std::string(kChecksumKey)); stored != header.metadata.end()) {
    const std::span<const std::byte> piece(file.data);
    const std::string found = checksum(header, {&piece, 1});
    if (found != stored->second) {
      throw Error(cat(where, ": checksum mismatch, the file is damaged: expected ", printable(stored->second, 8),
                      ", got ", found, "; if it was changed on purpose, drop the metadata key ", kChecksumKey));
    }
    file.verified = true;
    header.metadata.erase(stored);
  }
  file.metadata = std::move(header.metadata);
  file.entries = std::move(header.entries);
  return file;
}

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 0x3FF;
  if (exponent == 0) {  // zero and subnormals: fraction · 2^-24, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// The data need not be aligned, so each value is copied.
template <class Stored, class Convert>
void convert(const std::byte* from, std::span<float> out, Convert to_float) {
  for (float& value : out) {
    Stored stored;
    std::memcpy(&stored, from, sizeof stored);
    value = to_float(stored);
    from += sizeof stored;
  }
}

// Makes the header of a file with `tensors`, which are in the file's order.
Header plan(const std::vector<const SafetensorsTensor*>& tensors, std::map<std::string, std::string> metadata,
            std::string_view where) {
  Header header{std::move(metadata), {}};
  for (const auto& [key, value] : header.metadata) {
    TRIL_CHECK(is_utf8(key) && is_utf8(value), where, cat("metadata in UTF-8 for '", printable(key, 80), "'"),
               "other bytes");
  }
  int64_t offset = 0;
  for (const SafetensorsTensor* tensor : tensors) {
    check_name(tensor->name, where);
    SafetensorsEntry entry{tensor->name, tensor->dtype, tensor->shape, offset, 0};
    TRIL_CHECK(!__builtin_add_overflow(offset, byte_size(entry, where), &entry.end), where,
               "tensors whose sizes add up to what 63 bits hold", "an overflow");
    TRIL_CHECK(tensor->data != nullptr || entry.end == entry.begin, where,
               cat("data for tensor '", printable(tensor->name, 80), "'"), "none");
    offset = entry.end;
    header.entries.push_back(std::move(entry));
  }
  return header;
}

}  // namespace

const SafetensorsEntry* Safetensors::find(std::string_view name) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

Safetensors read_safetensors(const std::string& path) {
  const std::string where = printable(path);
  InputFile file(path);
  check_length(file.size(), where);
  std::byte length_bytes[kLengthBytes];
  file.read(length_bytes, kLengthBytes);
  const int64_t length = header_length(length_bytes, file.size(), where);
  const int64_t data_bytes = file.size() - kLengthBytes - length;
  try {
    std::string text(static_cast<size_t>(length), ' ');
    file.read(text.data(), length);
    Header header = parse_header(text, data_bytes, where);
    text = {};
    TRIL_CHECK(data_bytes <= usable_memory(), where,
               cat("at most ", usable_memory(), " bytes, which is all the memory there is"), cat(data_bytes));
    std::vector<std::byte> data(static_cast<size_t>(data_bytes));
    file.read(data.data(), data_bytes);
    return assemble(std::move(header), std::move(data), where);
  } catch (const std::bad_alloc&) { fail(where, "enough memory to read it", "none left"); }
}

Safetensors parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  const auto size = static_cast<int64_t>(file.size());
  check_length(size, where);
  std::byte length_bytes[kLengthBytes];
  std::memcpy(length_bytes, file.data(), kLengthBytes);
  const auto length = static_cast<size_t>(header_length(length_bytes, size, where));
  const auto text = file.subspan(kLengthBytes, length);
  const auto data = file.subspan(kLengthBytes + length);
  Header header =
      parse_header({reinterpret_cast<const char*>(text.data()), text.size()}, static_cast<int64_t>(data.size()), where);
  return assemble(std::move(header), {data.begin(), data.end()}, where);
}

void load_as_f32(const Safetensors& file, const SafetensorsEntry& entry, std::span<float> out) {
  const std::string where = cat(file.where, ": tensor '", printable(entry.name, 80), "'");
  const std::byte* const from = file.data.data() + entry.begin;
  const auto check_count = [&](int64_t width) {
    const int64_t count = (entry.end - entry.begin) / width;
    TRIL_CHECK(count == static_cast<int64_t>(out.size()), where, cat(out.size(), " values"), cat(count));
  };
  if (entry.dtype == "F32") {
    check_count(4);
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
  } else if (entry.dtype == "F64") {
    check_count(8);
    convert<double>(from, out, [](double value) { return static_cast<float>(value); });
  } else if (entry.dtype == "F16") {
    check_count(2);
    convert<uint16_t>(from, out, half_to_float);
  } else if (entry.dtype == "BF16") {
    check_count(2);
    convert<uint16_t>(from, out, [](uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); });
  } else {
    fail(where, "F32, F64, F16 or BF16", printable(entry.dtype, 20));
  }
}

void write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                       std::map<std::string, std::string> metadata) {
  const std::string where = printable(path);
  TRIL_CHECK(tensors.size() <= kMaxTensors, where, cat("at most ", kMaxTensors, " tensors"), cat(tensors.size()));
  std::vector<const SafetensorsTensor*> sorted;
  for (const SafetensorsTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
    const int rank_a = dtype_rank(a->dtype), rank_b = dtype_rank(b->dtype);
    return rank_a != rank_b ? rank_a > rank_b : a->name < b->name;
  });

  metadata.emplace("format", "pt");
  metadata.erase(std::string(kChecksumKey));
  Header header = plan(sorted, std::move(metadata), where);
  std::vector<std::span<const std::byte>> pieces;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const SafetensorsEntry& entry = header.entries[i];
    pieces.emplace_back(static_cast<const std::byte*>(sorted[i]->data), static_cast<size_t>(entry.end - entry.begin));
  }
  header.metadata.emplace(kChecksumKey, checksum(header, pieces));

  const std::string text = header_text(header);
  TRIL_CHECK(static_cast<int64_t>(text.size()) <= kMaxHeader, where, cat("a header of at most ", kMaxHeader, " bytes"),
             cat(text.size()), "use fewer or shorter names, or less metadata");
  const int64_t data_bytes = header.entries.empty() ? 0 : header.entries.back().end;
  // Never write what cannot be read back, such as repeated names.
  static_cast<void>(parse_header(text, data_bytes, where));

  const uint64_t length = text.size();
  write_file_atomically(
      path,
      [&](AtomicFile& file) {
        file.write(&length, sizeof length);
        file.write(text);
        for (const std::span<const std::byte> piece : pieces) file.write(piece.data(), piece.size());
      },
      kLengthBytes + static_cast<int64_t>(text.size()) + data_bytes);
}

}  // namespace tril
