// Multiplies blocks of bf16 panels on the matrix unit; core/matmul/bf16_panels.h tells their layout.
#pragma once

#include "core/matmul/panel_gemm.h"
#include "core/matmul/tile_block.h"

#if defined(__x86_64__) && defined(__linux__)
#include "core/matmul/bf16_panels.h"

namespace tril::bf16_tiles {

using bf16_panels::kSide;
using tile_block::TileSums;

inline constexpr int64_t kBlock = 2 * kSide;  // rows and columns of C that stay in registers while the inner axis runs

// Computes a block of kRows x kColumns tiles of C over `count` steps. The thread must hold a MatrixUnit.
template <int kRows, int kColumns>
TRIL_TILES void multiply(const Panels& a, const Panels& b, int64_t count, const TileSums& c) {
  tile_block::load<kRows, kColumns>(c);
  const char *at = a.data, *bt = b.data;
  for (int64_t i = 0; i < count; ++i, at += a.step, bt += b.step) {
    _tile_loadd(6, bt, 64);
    _tile_loadd(4, at, a.row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) {
      _tile_loadd(7, bt + b.panel, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRows == 2) {
      _tile_loadd(5, at + a.panel, a.row);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kColumns == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  tile_block::store<kRows, kColumns>(c);
}

using Multiply = void (*)(const Panels&, const Panels&, int64_t, const TileSums&);
[[nodiscard]] inline Multiply multiply_for(bool tall, bool wide) {
  if (tall) return wide ? multiply<2, 2> : multiply<2, 1>;
  return wide ? multiply<1, 2> : multiply<1, 1>;
}

}  // namespace tril::bf16_tiles
#endif
