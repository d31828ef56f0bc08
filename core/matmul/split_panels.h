// The operands of split_gemm as the tile unit reads them. A panel is 16 rows of A, or 16 columns of B; it is cut into
// steps of 32 along the inner axis, and a step holds three planes: the first, second and third bfloat16 of every
// number. A plane is a tile of 16 x 16 pairs, each pair the inner numbers i and i + 16 of a row of A or column of B:
//   of A, rows down and pairs across; of B, pairs down and columns across.
// What lies beyond the matrix is 0.
#pragma once

#if defined(__x86_64__)
#include <cstdint>

#include "core/machine/avx512.h"

namespace tril::split_panels {

inline constexpr int64_t kSide = 16;                  // rows or columns of a panel
inline constexpr int64_t kStep = 32;                  // inner numbers of a step
inline constexpr int64_t kPlaneSize = kSide * kStep;  // bfloat16 numbers
inline constexpr int64_t kStepSize = 3 * kPlaneSize;

// 2^50, as bits. Products of numbers below it, and sums of millions of those, stay far below the largest f32. Beyond
// that a product would be infinite, and its partial products could add up to NaN (inf - inf).
inline constexpr int kTooLarge = (127 + 50) << 23;

[[nodiscard]] constexpr int64_t steps(int64_t inner) { return (inner + kStep - 1) / kStep; }
[[nodiscard]] constexpr int64_t panels(int64_t side) { return (side + kSide - 1) / kSide; }

// The bfloat16 nearest to x, as an f32.
TRIL_AVX512_INLINE __m512i nearest(__m512 x) {
  return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)),
                          _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}

// Writes three planes of sixteen pairs. Each of the first two takes 8 of the 24 bits and leaves an exact remainder, so
// the third plane holds all that is left.
TRIL_AVX512_INLINE void split_pairs(__m512 low, __m512 high, uint16_t* out) {
#pragma GCC unroll 2
  for (int plane = 0; plane < 2; ++plane) {
    const __m512i low_part = nearest(low), high_part = nearest(high);
    _mm512_store_si512(out + plane * kPlaneSize, _mm512_or_si512(_mm512_srli_epi32(low_part, 16), high_part));
    low = _mm512_sub_ps(low, _mm512_castsi512_ps(low_part));
    high = _mm512_sub_ps(high, _mm512_castsi512_ps(high_part));
  }
  constexpr int kFirstOrSecondMasked = 0xf8;  // a | (b & c)
  _mm512_store_si512(
      out + 2 * kPlaneSize,
      _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(low), 16), _mm512_castps_si512(high),
                                _mm512_set1_epi32(static_cast<int>(0xffff0000u)), kFirstOrSecondMasked));
}

TRIL_AVX512_INLINE __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1u);
}

// Packs one step of a panel: `side` rows of A or columns of B (up to 16), `inner` numbers of each (up to 32). kAlong:
// the inner axis runs along the rows in memory, which are row_length apart; otherwise across them. Returns whether all
// the numbers are finite and below 2^50 in size (kTooLarge).
template <bool kOfB, bool kAlong>
TRIL_AVX512_INLINE bool pack_step(const float* x, int64_t row_length, int64_t side, int64_t inner, uint16_t* out) {
  const __mmask16 low_lanes = first_lanes(kAlong ? inner : side), high_lanes = first_lanes(kAlong ? inner - 16 : side);
  const int64_t low_rows = kAlong ? side : inner, high_rows = kAlong ? side : inner - 16;
  const float* const second = x + (kAlong ? 16 : 16 * row_length);
  __m512 low[16], high[16];
  __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) {
    low[i] = _mm512_maskz_loadu_ps(i < low_rows ? low_lanes : __mmask16{0}, x + i * row_length);
    high[i] = _mm512_maskz_loadu_ps(i < high_rows ? high_lanes : __mmask16{0}, second + i * row_length);
    largest = _mm512_max_epu32(largest, _mm512_castps_si512(_mm512_abs_ps(low[i])));
    largest = _mm512_max_epu32(largest, _mm512_castps_si512(_mm512_abs_ps(high[i])));
  }
  if constexpr (kOfB == kAlong) {
    avx512::transpose(low);
    avx512::transpose(high);
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) split_pairs(low[i], high[i], out + i * kStep);
  return _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(kTooLarge)) == 0;
}

template <bool kOfB>
TRIL_AVX512 inline bool pack_step(const float* x, int64_t row_length, bool along, int64_t side, int64_t inner,
                                  uint16_t* out) {
  return along ? pack_step<kOfB, true>(x, row_length, side, inner, out)
               : pack_step<kOfB, false>(x, row_length, side, inner, out);
}

}  // namespace tril::split_panels
#endif
