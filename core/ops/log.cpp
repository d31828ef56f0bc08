#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct LogFunction {
  using Attrs = NoAttrs;
  static constexpr SlopeReads kReads = SlopeReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return std::log(x);
  }
  template <class T>
  TRIL_INLINE static T slope(T x, Attrs) {
    return T{1} / x;
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
