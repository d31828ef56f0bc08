#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct SiluFunction {
  using Attrs = NoAttrs;
  static constexpr SlopeReads kReads = SlopeReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return x * math::sigmoid(x);
  }
  template <class T>
  TRIL_INLINE static T slope(T x, Attrs) {
    return math::sigmoid(x) * (T{1} + x * (T{1} - math::sigmoid(x)));
  }
};

struct Silu : ElementwiseOp<SiluFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{silu(in[0])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(silu, Silu)

Tensor silu(const Tensor& x) { return apply(registered::silu, {x}, NoAttrs{}); }

}  // namespace tril
