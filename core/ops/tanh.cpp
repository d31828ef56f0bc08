#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct TanhFunction {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::output;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::tanh(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T y, Attrs) {
    return dy * (T{1} - y * y);
  }
};

struct Tanh : ElementwiseOp<TanhFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{tanh(in[0])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(tanh, Tanh)

Tensor tanh(const Tensor& x) { return apply(registered::tanh, {x}, NoAttrs{}); }

}  // namespace tril
