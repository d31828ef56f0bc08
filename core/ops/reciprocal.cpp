#include "core/kernels/over_square.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct ReciprocalFunction {
  struct Attrs {
    double numerator;
  };
  static constexpr GradientReads kReads = GradientReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs attrs) {
    return static_cast<T>(attrs.numerator) / x;
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T x, Attrs attrs) {
    return over_square(-dy, static_cast<T>(attrs.numerator), x);
  }
};

struct Reciprocal : ElementwiseOp<ReciprocalFunction> {
  static std::vector<Sample> samples() {
    return elementwise_samples(SampleInput::Values::positive,
                               [](auto in) { return std::vector{reciprocal(in[0], -1.5)}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(reciprocal, Reciprocal)

Tensor reciprocal(const Tensor& x, double numerator) {
  return apply(registered::reciprocal, {x}, ReciprocalFunction::Attrs{numerator});
}

}  // namespace tril
