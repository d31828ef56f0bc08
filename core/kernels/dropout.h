// The dropout mask, made anew wherever it is needed: element `index` of sample `sample` is kept where its random word
// is at least p · 2^32. A row of a mask is asked for in blocks of kRandomBlock words.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/base/random.h"
#include "core/machine/clones.h"

namespace tril {

struct DropoutMask {
  RandomKey key;
  uint32_t threshold = 0;  // words below it are dropped
  double keep_scale = 1.0;

  DropoutMask(const RandomKey& random, double p)
      : key(random),
        threshold(static_cast<uint32_t>(std::min(std::floor(p * 0x1p32), 0x1p32 - 1))),
        keep_scale(p < 1.0 ? 1.0 / (1.0 - p) : 0.0) {}
  [[nodiscard]] bool active() const { return threshold != 0; }
};

// factors[i] = 0 or keep_scale for the elements [begin, begin + n) of a sample; begin is a multiple of kRandomBlock.
template <class T>
TRIL_INLINE void dropout_factors(const DropoutMask& mask, uint32_t sample, int64_t begin, int64_t n, T* factors) {
  const T kept = static_cast<T>(mask.keep_scale);
  for (int64_t at = 0; at < n; at += kRandomBlock) {
    uint32_t words[kRandomBlock];
    random_block(mask.key, sample, (begin + at) / kRandomBlock, words);
    const int64_t part = std::min(kRandomBlock, n - at);
    for (int64_t i = 0; i < part; ++i) factors[at + i] = words[i] >= mask.threshold ? kept : T{0};
  }
}

}  // namespace tril
