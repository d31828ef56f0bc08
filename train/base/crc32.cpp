#include "train/base/crc32.h"

#include <array>

namespace tril {
namespace {

// kTables[k][b] is the effect of byte b when k more bytes follow, so that eight look-ups take eight bytes.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}();

}  // namespace

void Crc32::add(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint32_t crc = state_;
  for (; size >= 8; size -= 8, bytes += 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t byte = i < 4 ? (crc >> 8 * i & 0xFF) ^ bytes[i] : bytes[i];
      next ^= kTables[7 - i][byte];
    }
    crc = next;
  }
  for (; size > 0; --size, ++bytes) crc = crc >> 8 ^ kTables[0][(crc ^ *bytes) & 0xFF];
  state_ = crc;
}

}  // namespace tril
