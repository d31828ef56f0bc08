#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct SiluFunction {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::silu(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T x, Attrs) {
    return dy * math::silu_slope(x);
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
