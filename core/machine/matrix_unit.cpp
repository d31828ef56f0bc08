#include "core/machine/matrix_unit.h"

#include "core/machine/avx512.h"

namespace tril {

#if defined(__x86_64__) && defined(__linux__)

namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

TRIL_TILES void prepare(const TileConfig& config) {
  asm volatile("" ::"r"(&config) : "memory");  // GCC 12 assumes that only its first eight bytes are read
  _tile_loadconfig(&config);
}
TRIL_TILES void release() { _tile_release(); }

}  // namespace

MatrixUnit::MatrixUnit(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<uint8_t>(rows);
  prepare(config);
}
MatrixUnit::~MatrixUnit() { release(); }

#else

MatrixUnit::MatrixUnit(int64_t) {}
MatrixUnit::~MatrixUnit() = default;

#endif

}  // namespace tril
