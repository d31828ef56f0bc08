#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct AffineFunction {
  struct Attrs {
    double factor, offset;
  };
  static constexpr GradientReads kReads = GradientReads::nothing;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs attrs) {
    return static_cast<T>(attrs.factor) * x + static_cast<T>(attrs.offset);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T, Attrs attrs) {
    return dy * static_cast<T>(attrs.factor);
  }
};

struct Affine : ElementwiseOp<AffineFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::normal,
                               [](auto in) { return std::vector{affine(in[0], -0.75, 1.5)}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(affine, Affine)

Tensor affine(const Tensor& x, double factor, double offset) {
  return apply(registered::affine, {x}, AffineFunction::Attrs{factor, offset});
}

}  // namespace tril
