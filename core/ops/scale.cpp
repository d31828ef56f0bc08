#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct ScaleFunction {
  struct Attrs {
    double factor;
  };
  static constexpr GradientReads kReads = GradientReads::nothing;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs attrs) {
    return x * static_cast<T>(attrs.factor);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T, Attrs attrs) {
    return dy * static_cast<T>(attrs.factor);
  }
};

struct Scale : ElementwiseOp<ScaleFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{scale(in[0], -0.75)}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(scale, Scale)

Tensor scale(const Tensor& x, double factor) { return apply(registered::scale, {x}, ScaleFunction::Attrs{factor}); }

}  // namespace tril
