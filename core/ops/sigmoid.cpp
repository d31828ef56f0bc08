#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct SigmoidFunction {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::output;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::sigmoid(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T y, Attrs) {
    return dy * (y * (T{1} - y));
  }
};

struct Sigmoid : ElementwiseOp<SigmoidFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{sigmoid(in[0])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(sigmoid, Sigmoid)

Tensor sigmoid(const Tensor& x) { return apply(registered::sigmoid, {x}, NoAttrs{}); }

}  // namespace tril
