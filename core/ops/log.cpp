#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct LogFunction {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::log(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T x, Attrs) {
    return dy / x;
  }
};

struct Log : ElementwiseOp<LogFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::positive, [](auto in) { return std::vector{log(in[0])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(log, Log)

Tensor log(const Tensor& x) { return apply(registered::log, {x}, NoAttrs{}); }

}  // namespace tril
