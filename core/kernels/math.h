// exp, tanh, sigmoid and the normal distribution, written so that loops over them vectorise: no branch, no call. The
// f32 forms are polynomials fitted for this file (relative error against f64 noted at each); the f64 forms are the
// standard library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "core/kernels/clones.h"

namespace tril::math {

TRIL_INLINE double exp(double x) { return std::exp(x); }

// e^x = 2^n e^r with n = round(x log2 e), |r| <= ln 2 / 2; 1.2e-7. Results under 2^-126 are 0.
TRIL_INLINE float exp(float x) {
  constexpr float kRound = 12582912.0f;                                 // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < -87.5f ? -87.5f : (x > 89.0f ? 89.0f : x);  // NaN fails both comparisons and passes
  const float shifted = clamped * std::numbers::log2e_v<float> + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 0.001382941147f;
  p = p * r + 0.008374777623f;
  p = p * r + 0.041668359190f;
  p = p * r + 0.166664212942f;
  p = p * r + 0.499999910593f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = whole >> 1;  // in two steps, so that 2^128 has an exponent
  const float scaled = p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((whole - half + 127) << 23);
  return x < -87.33654f ? 0.0f : (x > 88.72283f ? std::numeric_limits<float>::infinity() : scaled);
}

template <class T>
TRIL_INLINE T sigmoid(T x) {
  return T{1} / (T{1} + exp(-x));
}

TRIL_INLINE double tanh(double x) { return std::tanh(x); }

// x P(x^2) near 0, else 1 - 2 / (e^{2|x|} + 1); 2e-7.
TRIL_INLINE float tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x, square = x * x;
  float p = -0.005041549914f;
  p = p * square + 0.019973110408f;
  p = p * square - 0.053506609052f;
  p = p * square + 0.133281216025f;
  p = p * square - 0.333331167698f;
  p = p * square + 1.0f;
  const float far = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return square < 0.5f ? x * p : (x < 0.0f ? -far : far);
}

// The standard normal density and distribution at x, which share e^{-x²/2}.
template <class T>
struct Normal {
  T density, distribution;
};

TRIL_INLINE Normal<double> normal(double x) {
  return {std::exp(-0.5 * x * x) * (std::numbers::inv_sqrtpi * std::numbers::sqrt2 * 0.5),
          0.5 * std::erfc(-x * (std::numbers::sqrt2 * 0.5))};
}

// Phi(-z√2) = e^{-z²} t Q(t) / 2 with t = 1 / (1 + z/2), Q fitted to the scaled complementary error function; 3e-7.
TRIL_INLINE Normal<float> normal(float x) {
  constexpr float kInvSqrt2 = std::numbers::sqrt2_v<float> * 0.5f;
  const float z = (x < 0.0f ? -x : x) * kInvSqrt2;
  const float t = 1.0f / (1.0f + 0.5f * z);
  const float e = exp(-0.5f * x * x);
  float q = 0.01353464928f;
  q = q * t - 0.1296140552f;
  q = q * t + 0.4428111315f;
  q = q * t - 0.6870458126f;
  q = q * t + 0.4341518879f;
  q = q * t - 0.1045284793f;
  q = q * t + 0.227445513f;
  q = q * t + 0.2382882237f;
  q = q * t + 0.2828940153f;
  q = q * t + 0.2820628881f;
  const float tail = 0.5f * e * t * q;
  return {e * 0.3989422804f, x < 0.0f ? tail : 1.0f - tail};
}

}  // namespace tril::math
