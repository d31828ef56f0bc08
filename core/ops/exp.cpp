#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct ExpFunction {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::output;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::exp(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T y, Attrs) {
    return dy * y;
  }
};

struct Exp : ElementwiseOp<ExpFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{exp(in[0])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(exp, Exp)

Tensor exp(const Tensor& x) { return apply(registered::exp, {x}, NoAttrs{}); }

}  // namespace tril
