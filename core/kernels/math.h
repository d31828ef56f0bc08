// exp, log, tanh, sigmoid, SiLU and GELU with their derivatives, written so that loops over them vectorise: no branch,
// no call. The f32 forms are polynomials fitted for this file (relative error against f64 noted at each); the f64 forms
// rest on the standard library's. Infinities give the limits, NaN stays NaN, and subnormal numbers count as 0. The
// standard library does not treat those as 0, so the f64 forms handle them here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "core/machine/clones.h"

namespace tril::math {

// x limited to [-bound, bound]; NaN stays NaN.
template <class T>
TRIL_INLINE T clamp(T x, T bound) {
  return x < -bound ? -bound : (x > bound ? bound : x);
}

TRIL_INLINE double exp(double x) { return x < -708.3964185322641 ? 0.0 : std::exp(x); }

// e^r for |r| <= ln 2 / 2.
TRIL_INLINE float exp_polynomial(float r) {
  float p = 0.001382941147f;
  p = p * r + 0.008374777623f;
  p = p * r + 0.041668359190f;
  p = p * r + 0.166664212942f;
  p = p * r + 0.499999910593f;
  p = p * r + 1.0f;
  return p * r + 1.0f;
}

// e^x = 2^n e^r with n = round(x log2 e), |r| <= ln 2 / 2; 1.2e-7. Results under 2^-126 are 0.
TRIL_INLINE float exp(float x) {
  constexpr float kRound = 12582912.0f;                                 // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < -87.5f ? -87.5f : (x > 89.0f ? 89.0f : x);  // NaN fails both comparisons and passes
  const float shifted = clamped * std::numbers::log2e_v<float> + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  const float p = exp_polynomial(r);
  const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = whole >> 1;  // 2^whole as two factors, because f32 cannot hold 2^128
  const float scaled = p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((whole - half + 127) << 23);
  return x < -87.33654f ? 0.0f : (x > 88.72283f ? std::numeric_limits<float>::infinity() : scaled);
}

// exp(x) for a number minus its row's maximum, so x is at most 0 except for rounding. Overflow needs no guard, and 2^n
// is 0 by itself where x is -inf.
TRIL_INLINE double exp_of_difference(double x) { return std::exp(x); }
TRIL_INLINE float exp_of_difference(float x) {
  constexpr float kRound = 12582912.0f + 127.0f;  // so that the low bits of the rounded sum are the exponent of 2^n
  const float clamped = x < -88.0f ? -88.0f : x;
  const float shifted = clamped * std::numbers::log2e_v<float> + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  return exp_polynomial(r) * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

// log x = n log 2 + log m, m in [1/sqrt 2, sqrt 2), by the series of 2 artanh s with s = (m - 1) / (m + 1); the error
// is 1.2e-7 times the larger of 1 and |log x|. log 0 is -inf, the log of a negative number NaN.
TRIL_INLINE double log(double x) {
  return std::fabs(x) < std::numeric_limits<double>::min() ? -std::numeric_limits<double>::infinity() : std::log(x);
}
TRIL_INLINE float log(float x) {
  constexpr uint32_t kHalfRoot = 0x3f3504f3u;  // 1 / sqrt 2
  const uint32_t bits = std::bit_cast<uint32_t>(x), above = bits - kHalfRoot;
  const float n = static_cast<float>(static_cast<int32_t>(above) >> 23);
  const float m = std::bit_cast<float>((above & 0x007fffffu) + kHalfRoot);
  const float s = (m - 1.0f) / (m + 1.0f), u = s * s;
  const float series = (u * (1.0f / 7.0f) + 1.0f / 5.0f) * u + 1.0f / 3.0f;
  const float result = n * std::numbers::ln2_v<float> + 2.0f * (s + s * u * series);
  const float positive = x <= std::numeric_limits<float>::max() ? result : x;  // infinity and NaN stay
  const float negative = x > -std::numeric_limits<float>::min() ? -std::numeric_limits<float>::infinity()
                                                                : std::numeric_limits<float>::quiet_NaN();
  return x < std::numeric_limits<float>::min() ? negative : positive;
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

// x times a gate that goes to 0 as x goes to -inf. At -inf the result is 0, not the NaN of -inf times 0.
template <class T>
TRIL_INLINE T gated(T x, T gate) {
  return (x < std::numeric_limits<T>::lowest() ? std::numeric_limits<T>::lowest() : x) * gate;
}

// sigmoid(x) and its derivative s (1 - s), without cancellation where s is close to 1.
template <class T>
struct Logistic {
  T value, slope;
};
template <class T>
TRIL_INLINE Logistic<T> logistic(T x) {
  const T e = exp(x < T{0} ? x : -x), r = T{1} / (T{1} + e);
  return {x < T{0} ? e * r : r, e * r * r};
}

// x s with s = sigmoid(x), and its derivative s + x s (1 - s). Beyond |x| = 800, s has reached 0 or 1.
template <class T>
TRIL_INLINE T silu(T x) {
  return gated(x, sigmoid(x));
}
template <class T>
TRIL_INLINE T silu_slope(T x) {
  const T clamped = clamp(x, T{800});
  const Logistic<T> s = logistic(clamped);
  return s.value + clamped * s.slope;
}

// x/2 (1 + tanh u) = x s with s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3); derivative s + x s (1 - s) 2u'.
// Beyond |x| = 30, s has reached 0 or 1.
inline constexpr double kGeluTwice = 1.5957691216057308, kGeluCubic = 0.044715;  // 2 sqrt(2/pi)
template <class T>
TRIL_INLINE T gelu_tanh(T x) {
  const T clamped = clamp(x, T{30});
  return gated(x, sigmoid(T(kGeluTwice) * clamped * (T{1} + T(kGeluCubic) * clamped * clamped)));
}
template <class T>
TRIL_INLINE T gelu_tanh_slope(T x) {
  const T clamped = clamp(x, T{30}), cubic = T(kGeluCubic) * clamped * clamped, twice = T(kGeluTwice) * clamped;
  const Logistic<T> s = logistic(twice * (T{1} + cubic));
  return s.value + s.slope * twice * (T{1} + T{3} * cubic);
}

// The exact GELU x Phi(x), Phi the standard normal distribution, and its derivative Phi(x) + x phi(x).
TRIL_INLINE double normal_distribution(double x) { return 0.5 * std::erfc(-x * (std::numbers::sqrt2 * 0.5)); }
TRIL_INLINE double gelu_erf(double x) { return gated(x, normal_distribution(x)); }
TRIL_INLINE double gelu_erf_slope(double x) {
  const double clamped = clamp(x, 40.0);
  const double density = exp(-0.5 * clamped * clamped) * (std::numbers::inv_sqrtpi * std::numbers::sqrt2 * 0.5);
  return normal_distribution(clamped) + clamped * density;
}

// In f32, Phi(x) and the derivative are each 1/2 plus an odd function of x, which is fitted as x P(x²) / Q(x²) up to
// |x| = 5.5. The absolute errors are 2e-7 and 5e-7. At 5.5 Phi has reached 0 or 1; the derivative is still about 1e-7
// away and is set to its limits beyond 5.56.
inline constexpr float kGeluEnd = 5.5f, kGeluSlopeEnd = 5.56f;

TRIL_INLINE float gelu_erf(float x) {
  const float clamped = clamp(x, kGeluEnd), u = clamped * clamped;
  float p = 2.274934907e-08f;
  p = p * u + 6.352115179e-06f;
  p = p * u + 1.688259654e-04f;
  p = p * u + 4.677262157e-03f;
  p = p * u + 3.385268152e-02f;
  p = p * u + 3.989422321e-01f;
  float q = 1.197503252e-06f;
  q = q * u + 7.364757039e-05f;
  q = q * u + 1.884446479e-03f;
  q = q * u + 2.864588983e-02f;
  q = q * u + 2.515220046e-01f;
  q = q * u + 1.0f;
  const float distribution = 0.5f + clamped * p / q;
  return (x < -kGeluEnd ? 0.0f : x) * distribution;
}

TRIL_INLINE float gelu_erf_slope(float x) {
  const float clamped = clamp(x, kGeluEnd), u = clamped * clamped;
  float p = 1.908720719e-07f;
  p = p * u + 3.580319026e-05f;
  p = p * u + 2.059325925e-05f;
  p = p * u + 1.421903819e-02f;
  p = p * u - 3.094391339e-02f;
  p = p * u + 7.978852987e-01f;
  float q = 8.887115655e-06f;
  q = q * u + 1.920603390e-04f;
  q = q * u + 3.521819832e-03f;
  q = q * u + 4.098851979e-02f;
  q = q * u + 2.945587337e-01f;
  q = q * u + 1.0f;
  const float slope = 0.5f + clamped * p / q;
  return x < -kGeluSlopeEnd ? 0.0f : (x > kGeluSlopeEnd ? 1.0f : slope);
}

}  // namespace tril::math
