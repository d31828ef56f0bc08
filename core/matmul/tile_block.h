// Loads a block of up to 2 x 2 tiles of a product's sums into tiles 0 to 3, and stores it. The thread must hold a
// MatrixUnit.
#pragma once

#include "core/machine/avx512.h"
#include "core/machine/matrix_unit.h"

#if defined(__x86_64__) && defined(__linux__)

namespace tril::tile_block {

// Where a block of C is loaded from (null: it starts from 0) and stored to, and the bytes between its rows there. With
// from_bytes 0 all rows start from the same one, the bias.
struct TileSums {
  const float* from;
  int64_t from_bytes;
  float* to;
  int64_t to_bytes;
};

template <int kRows, int kColumns>
TRIL_TILES_INLINE void load(const TileSums& c) {
  if (c.from == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  const auto* const from = reinterpret_cast<const char*>(c.from);
  _tile_loadd(0, from, c.from_bytes);
  if constexpr (kColumns == 2) _tile_loadd(1, from + 64, c.from_bytes);
  if constexpr (kRows == 2) _tile_loadd(2, from + 16 * c.from_bytes, c.from_bytes);
  if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, from + 16 * c.from_bytes + 64, c.from_bytes);
}

template <int kRows, int kColumns>
TRIL_TILES_INLINE void store(const TileSums& c) {
  auto* const to = reinterpret_cast<char*>(c.to);
  _tile_stored(0, to, c.to_bytes);
  if constexpr (kColumns == 2) _tile_stored(1, to + 64, c.to_bytes);
  if constexpr (kRows == 2) _tile_stored(2, to + 16 * c.to_bytes, c.to_bytes);
  if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, to + 16 * c.to_bytes + 64, c.to_bytes);
}

}  // namespace tril::tile_block
#endif
