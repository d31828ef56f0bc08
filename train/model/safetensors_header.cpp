#include "train/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "train/base/crc32.h"
#include "train/base/json_text.h"
#include "train/base/utf8.h"

namespace tril::safetensors {
namespace {

constexpr size_t kMaxName = 1024;
constexpr size_t kMaxRank = 64;
constexpr size_t kMaxMetadata = 100'000;
constexpr int64_t kMaxOffset = int64_t{1} << 53;

struct DtypeInfo {
  std::string_view name;
  int64_t bits;
};

// In the order of the reference implementation, by which its writer sorts.
constexpr std::array<DtypeInfo, 22> kDtypes{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

std::string in_quotes(std::string_view name) { return cat("'", printable(name, 80), "'"); }

// Reads the JSON value of one tensor.
SafetensorsEntry read_entry(JsonReader& json, const std::string& name, std::string_view where) {
  SafetensorsEntry entry;
  std::optional<std::string> dtype;
  bool has_shape = false;
  std::vector<int64_t> offsets;
  const auto once = [&](bool seen, std::string_view key) {
    TRIL_CHECK(!seen, where, cat("one ", key, " for tensor ", in_quotes(name)), "two");
  };
  json.object([&](const std::string& key) {
    if (key == "dtype") {
      once(dtype.has_value(), key);
      dtype = json.string();
    } else if (key == "shape") {
      once(std::exchange(has_shape, true), key);
      json.array([&] {
        TRIL_CHECK(entry.shape.size() < kMaxRank, where, cat("at most ", kMaxRank, " dimensions"), "more",
                   cat("see tensor ", in_quotes(name)));
        entry.shape.push_back(json.unsigned_integer());
      });
    } else if (key == "data_offsets") {
      once(!offsets.empty(), key);
      json.array([&] {
        TRIL_CHECK(offsets.size() < 2, where, cat("two data_offsets for tensor ", in_quotes(name)), "more");
        offsets.push_back(json.unsigned_integer());
      });
      TRIL_CHECK(offsets.size() == 2, where, cat("two data_offsets for tensor ", in_quotes(name)), cat(offsets.size()));
    } else {
      fail(where, cat("dtype, shape and data_offsets for tensor ", in_quotes(name)), in_quotes(key));
    }
  });
  TRIL_CHECK(dtype && has_shape && offsets.size() == 2, where,
             cat("dtype, shape and data_offsets for tensor ", in_quotes(name)),
             cat("no ", !dtype       ? "dtype"
                        : !has_shape ? "shape"
                                     : "data_offsets"));
  entry.name = name;
  entry.dtype = *std::move(dtype);
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

Header read_json(std::string_view text, std::string_view where) {
  Header header;
  bool has_metadata = false;
  JsonReader json(text, cat(where, " (header)"));
  json.object([&](const std::string& key) {
    if (key == kMetadataKey) {
      TRIL_CHECK(!has_metadata, where, "one __metadata__", "two");
      has_metadata = true;
      json.object([&](const std::string& name) {
        TRIL_CHECK(header.metadata.size() < kMaxMetadata, where, cat("at most ", kMaxMetadata, " metadata"), "more");
        TRIL_CHECK(header.metadata.emplace(name, json.string()).second, where,
                   cat("one metadata value for ", in_quotes(name)), "two");
      });
      return;
    }
    check_name(key, where);
    TRIL_CHECK(header.entries.size() < kMaxTensors, where, cat("at most ", kMaxTensors, " tensors"), "more");
    header.entries.push_back(read_entry(json, key, where));
  });
  json.end();
  return header;
}

// The indices of the entries, sorted by name.
std::vector<size_t> by_name(const std::vector<SafetensorsEntry>& entries) {
  std::vector<size_t> order(entries.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return entries[a].name < entries[b].name; });
  return order;
}

void check_unique(const std::vector<SafetensorsEntry>& entries, std::string_view where) {
  const std::vector<size_t> order = by_name(entries);
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string& name = entries[order[i]].name;
    TRIL_CHECK(name != entries[order[i - 1]].name, where, cat("one tensor named ", in_quotes(name)), "two");
  }
}

// The tensors' ranges must follow each other from 0 to the end of the data: no hole, no overlap, nothing left over.
void check_ranges(const std::vector<SafetensorsEntry>& entries, int64_t data_bytes, std::string_view where) {
  int64_t previous = 0;
  for (const SafetensorsEntry& entry : entries) {
    TRIL_CHECK(entry.begin == previous, where,
               cat("tensor ", in_quotes(entry.name), " to begin at data byte ", previous), cat(entry.begin));
    TRIL_CHECK(entry.end >= entry.begin, where,
               cat("tensor ", in_quotes(entry.name), " to end at ", entry.begin, " or later"), cat(entry.end));
    const int64_t size = byte_size(entry, where);
    TRIL_CHECK(entry.end - entry.begin == size, where,
               cat(size, " bytes for tensor ", in_quotes(entry.name), " by its dtype and shape"),
               cat(entry.end - entry.begin));
    previous = entry.end;
  }
  TRIL_CHECK(previous == data_bytes, where, cat(previous, " bytes of data after the header"), cat(data_bytes),
             data_bytes < previous ? "the file is cut short" : "something follows the last tensor");
}

void add_number(Crc32& crc, uint64_t value) {
  unsigned char bytes[8];
  for (unsigned char& byte : bytes) {
    byte = static_cast<unsigned char>(value & 0xFF);
    value >>= 8;
  }
  crc.add(bytes, sizeof bytes);
}

void add_text(Crc32& crc, std::string_view text) {
  add_number(crc, text.size());
  crc.add(text.data(), text.size());
}

}  // namespace

int dtype_rank(std::string_view dtype) {
  const auto* const found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeInfo& info) { return info.name == dtype; });
  return found == kDtypes.end() ? -1 : static_cast<int>(found - kDtypes.begin());
}

void check_name(std::string_view name, std::string_view where) {
  TRIL_CHECK(name != kMetadataKey, where, "a tensor name", "__metadata__, which the format keeps for itself");
  TRIL_CHECK(name.size() <= kMaxName, where, cat("tensor names of at most ", kMaxName, " bytes"),
             cat(name.size(), " in ", in_quotes(name)));
  for (size_t at = 0; at < name.size();) {
    const Utf8Char c = decode_utf8(name, at);
    TRIL_CHECK(c.fault == Utf8Fault::kNone, where, "tensor names in UTF-8", in_quotes(name));
    TRIL_CHECK(c.code_point >= 0x20 && (c.code_point < 0x7F || c.code_point > 0x9F), where,
               "tensor names without control characters", in_quotes(name));
    at += static_cast<size_t>(c.length);
  }
}

int64_t byte_size(const SafetensorsEntry& entry, std::string_view where) {
  const int rank = dtype_rank(entry.dtype);
  TRIL_CHECK(rank >= 0, where, cat("a dtype that safetensors has for tensor ", in_quotes(entry.name)),
             in_quotes(entry.dtype));
  int64_t bits = kDtypes[static_cast<size_t>(rank)].bits;
  for (const int64_t dimension : entry.shape) {
    TRIL_CHECK(dimension >= 0 && !__builtin_mul_overflow(bits, dimension, &bits), where,
               cat("a size for tensor ", in_quotes(entry.name), " that 63 bits hold"),
               cat("an overflow at dimension ", dimension));
  }
  TRIL_CHECK(bits % 8 == 0, where, cat("whole bytes for tensor ", in_quotes(entry.name)), cat(bits, " bits"));
  TRIL_CHECK(bits / 8 <= kMaxOffset, where, cat("at most 2^53 bytes for tensor ", in_quotes(entry.name)),
             cat(bits / 8));
  return bits / 8;
}

Header parse_header(std::string_view text, int64_t data_bytes, std::string_view where) {
  Header header = read_json(text, where);
  check_unique(header.entries, where);
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_ranges(header.entries, data_bytes, where);
  return header;
}

std::string header_text(const Header& header) {
  auto json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json[std::string(kMetadataKey)] = header.metadata;
  auto& members = json.get_ref<nlohmann::ordered_json::object_t&>();  // not json[name], which looks through all members
  for (const SafetensorsEntry& entry : header.entries)
    members.emplace_back(
        entry.name, nlohmann::ordered_json{
                        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}});
  std::string out = json_text(json);
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

std::string checksum(const Header& header, std::span<const std::span<const std::byte>> data) {
  Crc32 crc;
  add_number(crc, header.metadata.size() - header.metadata.count(std::string(kChecksumKey)));
  for (const auto& [key, value] : header.metadata) {
    if (key == kChecksumKey) continue;
    add_text(crc, key);
    add_text(crc, value);
  }
  add_number(crc, header.entries.size());
  for (const size_t i : by_name(header.entries)) {
    const SafetensorsEntry& entry = header.entries[i];
    add_text(crc, entry.name);
    add_text(crc, entry.dtype);
    add_number(crc, entry.shape.size());
    for (const int64_t dimension : entry.shape) add_number(crc, static_cast<uint64_t>(dimension));
    add_number(crc, static_cast<uint64_t>(entry.begin));
    add_number(crc, static_cast<uint64_t>(entry.end));
  }
  for (const std::span<const std::byte> piece : data) crc.add(piece.data(), piece.size());

  std::string digits(8, '0');
  for (size_t i = 0; i < 8; ++i) digits[i] = "0123456789abcdef"[crc.value() >> (28 - 4 * i) & 15];
  return digits;
}

}  // namespace tril::safetensors
