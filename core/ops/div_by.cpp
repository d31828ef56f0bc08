#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

// A division and not a product with 1 / divisor, which rounds twice: 49 / 49 is 1.
struct DivByFunction {
  struct Attrs {
    double divisor;
  };
  static constexpr GradientReads kReads = GradientReads::nothing;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs attrs) {
    return x / static_cast<T>(attrs.divisor);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T, Attrs attrs) {
    return dy / static_cast<T>(attrs.divisor);
  }
};

struct DivBy : ElementwiseOp<DivByFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{div_by(in[0], -3.0)}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(div_by, DivBy)

Tensor div_by(const Tensor& x, double divisor) { return apply(registered::div_by, {x}, DivByFunction::Attrs{divisor}); }

}  // namespace tril
