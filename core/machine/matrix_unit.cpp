#include "core/machine/matrix_unit.h"

#include "core/machine/onednn.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tril {

#if defined(__x86_64__) && defined(__linux__)

namespace {

bool asked_for_and_given() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16Tiles = 1u << 22, kTiles = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16Tiles) == 0 || (d & kTiles) == 0) return false;
  constexpr long kAskPermission = 0x1023, kTileData = 18;
  return onednn_uses_amx() && ::syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

TRIL_TILES void prepare(const TileConfig& config) {
  asm volatile("" ::"r"(&config) : "memory");  // GCC 12 believes that its first eight bytes are all that is read
  _tile_loadconfig(&config);
}
TRIL_TILES void release() { _tile_release(); }

}  // namespace

bool matrix_unit_works() {
  static const bool works = asked_for_and_given();
  return works;
}

MatrixUnit::MatrixUnit(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<uint8_t>(rows);
  prepare(config);
}
MatrixUnit::~MatrixUnit() { release(); }

#else

bool matrix_unit_works() { return false; }
MatrixUnit::MatrixUnit(int64_t) {}
MatrixUnit::~MatrixUnit() = default;

#endif

}  // namespace tril
