// Shared by code that is written for AVX-512. Such code may run only on a Cpu of CpuLevel::avx512, a function marked
// TRIL_BF16 only on one of CpuLevel::avx512_bf16.
#pragma once

#include "core/machine/clones.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns about its own header
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#define TRIL_AVX512_INLINE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"), always_inline)) inline

#define TRIL_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

namespace tril::avx512 {

// Transposes a matrix of 16 x 16 numbers, held in sixteen registers.
TRIL_AVX512_INLINE void transpose(__m512* rows) {
  __m512 a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512d p = _mm512_castps_pd(a[4 * i + j]), q = _mm512_castps_pd(a[4 * i + j + 2]);
      b[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
      b[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 p = _mm512_shuffle_f32x4(b[i], b[4 + i], 0x88), q = _mm512_shuffle_f32x4(b[i], b[4 + i], 0xdd),
                 r = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0x88),
                 s = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0xdd);
    rows[i] = _mm512_shuffle_f32x4(p, r, 0x88);
    rows[4 + i] = _mm512_shuffle_f32x4(q, s, 0x88);
    rows[8 + i] = _mm512_shuffle_f32x4(p, r, 0xdd);
    rows[12 + i] = _mm512_shuffle_f32x4(q, s, 0xdd);
  }
}

}  // namespace tril::avx512
#endif
