// The room core/attention: the walk of attention over heads and blocks of queries, its products and its rows of
// scores.

// One query that looks at the keys and values kept of earlier tokens: Σ softmax(q · k / sqrt(D)) v for one head. A row
// holds a head's D numbers, in f32 or bf16, and is read in whole groups of lanes.
#pragma once

#include <cstdint>
#include <limits>

#include "core/base/dtype.h"
#include "core/kernels/math.h"
#include "core/kernels/rows.h"

namespace tril::one_query {

inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kKeys = 4;  // taken at a time: up to kKeys - 1 rows behind the last are read, though not used

[[nodiscard]] constexpr int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

using rows::Lanes;

TRIL_INLINE Lanes<float> wide(const float* x) { return rows::lanes(x); }
TRIL_INLINE Lanes<float> wide(const bf16* x) {
  uint32_t words[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) words[i] = uint32_t{x[i].bits} << 16;
  return rows::lanes(reinterpret_cast<const float*>(words));
}

// The sums of four vectors' lanes.
TRIL_INLINE void add_up(const Lanes<float>* v, float* out) {
  const auto pairs = [](const Lanes<float>& a, const Lanes<float>& b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  };
  const Lanes<float> ab = pairs(v[0], v[1]), cd = pairs(v[2], v[3]);
  const Lanes<float> fours =
      __builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
      __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  const Lanes<float> eights =
      fours + __builtin_shufflevector(fours, fours, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  for (int i = 0; i < 4; ++i) out[i] = eights[i] + eights[i + 4];
}

// q · k for four keys, over whole groups of lanes: what q holds beyond its end is 0. Loops over sums are unrolled by
// name here and below: GCC 12 keeps the sums in memory otherwise.
template <class W>
TRIL_INLINE void dots(const float* q, const W* k, int64_t row, int64_t n, float* out) {
  Lanes<float> sums[kKeys] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kKeys; ++j) sums[j] += rows::lanes(q + i) * wide(k + j * row + i);
  }
  add_up(sums, out);
}

// kVectors vectors of lanes of Σ share v over the tokens. Several sums of each, since one would wait for itself.
template <int kVectors, class W>
TRIL_INLINE void mix_lanes(const float* shares, const W* v, int64_t row, int64_t tokens, float factor, float* out) {
  Lanes<float> sums[kKeys][kVectors] = {};
  int64_t t = 0;
  for (; t + kKeys <= tokens; t += kKeys) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kKeys; ++j)
#pragma GCC unroll 2
      for (int64_t i = 0; i < kVectors; ++i) sums[j][i] += shares[t + j] * wide(v + (t + j) * row + i * kLanes);
  }
  for (; t < tokens; ++t)
    for (int64_t i = 0; i < kVectors; ++i) sums[0][i] += shares[t] * wide(v + t * row + i * kLanes);
  for (int64_t i = 0; i < kVectors; ++i)
    rows::put_lanes<float>(out + i * kLanes, factor * ((sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i])));
}

// What one query sees of a head: keys and values of so many tokens, `row` apart.
template <class W>
struct Seen {
  const W *keys, *values;
  int64_t row, tokens;
};

// q, followed by zeros, and out: (D), with room for whole groups of lanes; scores: room for as many of the tokens.
template <class W>
TRIL_INLINE void attend(const float* q, const Seen<W>& seen, int64_t D, float scale, float* scores, float* out) {
  for (int64_t t = 0; t < seen.tokens; t += kKeys) dots(q, seen.keys + t * seen.row, seen.row, padded(D), scores + t);
  const int64_t n = padded(seen.tokens);
  if (!(scale > 0.0f)) {  // the largest stays the largest under positive factors alone
    for (int64_t t = 0; t < seen.tokens; ++t) scores[t] *= scale;
    scale = 1.0f;
  }
  for (int64_t t = seen.tokens; t < n; ++t) scores[t] = -std::numeric_limits<float>::infinity();
  const float top = rows::max(scores, n);
  for (int64_t t = 0; t < n; ++t) scores[t] = math::exp_of_difference((scores[t] - top) * scale);
  const float factor = 1.0f / rows::sum(scores, n);
  int64_t d = 0;
  for (; d + 2 * kLanes <= padded(D); d += 2 * kLanes)
    mix_lanes<2>(scores, seen.values + d, seen.row, seen.tokens, factor, out + d);
  if (d < padded(D)) mix_lanes<1>(scores, seen.values + d, seen.row, seen.tokens, factor, out + d);
}

}  // namespace tril::one_query
