// x y / b², the form of the derivatives of quotients.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/machine/clones.h"

namespace tril {

// x y / b², right wherever the result is in range, even if x y or b² is not. f32 is computed in f64; f64 with its
// exponents handled apart.
TRIL_INLINE float over_square(float x, float y, float b) {
  return static_cast<float>(double{x} * double{y} / (double{b} * double{b}));
}
inline double over_square(double x, double y, double b) {
  const double direct = x * (y / b) / b, size = std::fabs(direct);
  if (!(std::isfinite(x) && std::isfinite(y) && std::isfinite(b)) || (size > 1e-250 && size < 1e250)) return direct;
  if (std::min({std::fabs(x), std::fabs(y), std::fabs(b)}) < std::numeric_limits<double>::min()) return direct;
  int exponent_x = 0, exponent_y = 0, exponent_b = 0;
  const double fraction_x = std::frexp(x, &exponent_x), fraction_y = std::frexp(y, &exponent_y),
               fraction_b = std::frexp(b, &exponent_b);
  return std::ldexp(fraction_x * fraction_y / (fraction_b * fraction_b), exponent_x + exponent_y - 2 * exponent_b);
}

}  // namespace tril
