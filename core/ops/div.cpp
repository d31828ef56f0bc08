#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops.h"
#include "core/ops/broadcast.h"

namespace tril {
namespace {

// x y / b², right wherever the result can be held, though x y or b² may not be: f32 in f64, f64 with the exponents set
// aside.
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

struct DivFunction {
  static constexpr bool kReadsOperands = true;
  template <class T>
  TRIL_INLINE static T value(T a, T b) {
    return a / b;
  }
  template <class T>
  TRIL_INLINE static T gradient_a(T dy, T, T b) {
    return dy / b;
  }
  template <class T>
  TRIL_INLINE static T gradient_b(T dy, T a, T b) {
    return over_square(-dy, a, b);
  }
};

struct Div : BroadcastOp<DivFunction> {
  static std::vector<Sample> samples() {
    return broadcast_samples(SampleInput::Values::positive, [](auto in) { return std::vector{div(in[0], in[1])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(div, Div)

Tensor div(const Tensor& a, const Tensor& b) { return apply(registered::div, {a, b}, NoAttrs{}); }

}  // namespace tril
