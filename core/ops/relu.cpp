#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct ReluFunction {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return x < T{0} ? T{0} : x;
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T x, Attrs) {
    return x <= T{0} ? T{0} : dy;
  }
};

struct Relu : ElementwiseOp<ReluFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::spaced, [](auto in) { return std::vector{relu(in[0])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(relu, Relu)

Tensor relu(const Tensor& x) { return apply(registered::relu, {x}, NoAttrs{}); }

}  // namespace tril
