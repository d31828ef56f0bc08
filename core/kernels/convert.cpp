#include "core/kernels/convert.h"

#include "core/machine/avx512.h"

namespace tril::convert_rows {

#if defined(__x86_64__)

TRIL_BF16 void round_by_instruction(const float* from, bf16* to, int64_t count) {
  int64_t i = 0;
  for (; i + 32 <= count; i += 32)
    _mm512_storeu_si512(to + i,
                        (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i)));
  for (; i < count; i += 16) {
    const auto lanes = static_cast<__mmask16>(count - i >= 16 ? 0xffffu : (1u << (count - i)) - 1u);
    _mm256_mask_storeu_epi16(to + i, lanes, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, from + i)));
  }
}

#else

void round_by_instruction(const float*, bf16*, int64_t) {}

#endif

}  // namespace tril::convert_rows
