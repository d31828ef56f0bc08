#include "core/ops.h"
#include "core/ops/broadcast.h"

namespace tril {
namespace {

struct SubFunction {
  static constexpr bool kReadsOperands = false;
  template <class T>
  TRIL_INLINE static T value(T a, T b) {
    return a - b;
  }
  template <class T>
  TRIL_INLINE static T gradient_a(T dy, T, T) {
    return dy;
  }
  template <class T>
  TRIL_INLINE static T gradient_b(T dy, T, T) {
    return -dy;
  }
};

struct Sub : BroadcastOp<SubFunction> {
  static std::vector<Sample> samples() {
    return broadcast_samples(SampleInput::Values::normal, [](auto in) { return std::vector{sub(in[0], in[1])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(sub, Sub)

Tensor sub(const Tensor& a, const Tensor& b) { return apply(registered::sub, {a, b}, NoAttrs{}); }

}  // namespace tril
