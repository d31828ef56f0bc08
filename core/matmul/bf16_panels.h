// The operands of bf16_gemm as the product reads them. A panel is 16 rows of A, or 16 columns of B; it is cut into
// steps of 32 along the inner axis, and a step is a tile of 16 x 16 pairs, each pair the inner numbers 2p and 2p + 1:
//   of A, rows down and pairs across, as A lies in memory; of B, pairs down and columns across.
// What lies beyond the matrix is 0.
#pragma once

#if defined(__x86_64__)
#include <cstdint>

#include "core/base/dtype.h"
#include "core/machine/avx512.h"

namespace tril::bf16_panels {

inline constexpr int64_t kSide = 16;                 // rows or columns of a panel
inline constexpr int64_t kStep = 32;                 // inner numbers of a step
inline constexpr int64_t kTileSize = kSide * kStep;  // numbers

[[nodiscard]] constexpr int64_t steps(int64_t inner) { return (inner + kStep - 1) / kStep; }
[[nodiscard]] constexpr int64_t panels(int64_t side) { return (side + kSide - 1) / kSide; }

TRIL_AVX512_INLINE uint32_t first_lanes(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1u;
}

// Interleaves two rows of sixteen numbers: pair i is (first[i], second[i]). Numbers that are masked out are 0.
TRIL_AVX512_INLINE __m512i pairs(const bf16* first, __mmask16 first_mask, const bf16* second, __mmask16 second_mask) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_mask, first)),
                high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second_mask, second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Packs one step of a panel: `side` rows of A or columns of B (up to 16), `inner` numbers of each (up to 32). kAlong:
// the inner axis runs along the rows in memory, which are row_length apart; otherwise across them.
template <bool kOfB, bool kAlong>
TRIL_AVX512_INLINE void pack_step(const bf16* x, int64_t row_length, int64_t side, int64_t inner, bf16* out) {
  __m512 rows[16];
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) {
    if constexpr (kAlong) {
      rows[i] = _mm512_castsi512_ps(
          _mm512_maskz_loadu_epi16(i < side ? first_lanes(inner) : 0u, x + (i < side ? i : 0) * row_length));
    } else {
      const auto lanes = static_cast<__mmask16>(first_lanes(side));
      const bool one = 2 * i < inner, two = 2 * i + 1 < inner;
      rows[i] = _mm512_castsi512_ps(pairs(x + (one ? 2 * i : 0) * row_length, one ? lanes : __mmask16{0},
                                          x + (two ? 2 * i + 1 : 0) * row_length, two ? lanes : __mmask16{0}));
    }
  }
  if constexpr (kOfB == kAlong) avx512::transpose(rows);
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) _mm512_store_ps(out + i * kStep, rows[i]);
}

template <bool kOfB>
TRIL_AVX512 inline void pack_step(const bf16* x, int64_t row_length, bool along, int64_t side, int64_t inner,
                                  bf16* out) {
  along ? pack_step<kOfB, true>(x, row_length, side, inner, out)
        : pack_step<kOfB, false>(x, row_length, side, inner, out);
}

}  // namespace tril::bf16_panels
#endif
