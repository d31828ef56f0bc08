#include <cmath>

#include "core/ops.h"
#include "core/ops/softmax.h"

namespace tril {
namespace {

// (x - top) - log Σ e^(x - top), in this order: top + log Σ would lose the logarithm to rounding where top is large.
template <class T>
TRIL_INLINE void log_softmax_row(const T* x, T* y, int64_t n) {
  const T top = rows::max(x, n), shift = shift_of(top), total = exp_row(x, y, n, shift);
  const T log_total = total == T{0} ? T{0} : std::log(total);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - shift - log_total;
}

// dx = dy - e^y sum(dy)
template <class T>
TRIL_INLINE void log_softmax_gradient_row(const T* y, const T* dy, T* dx, int64_t n) {
  const T total = rows::sum(dy, n);
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - math::exp_of_difference(y[i]) * total;
}

struct LogSoftmax {
  using Attrs = SoftmaxAttrs;
  static void infer(Infer& op, const Attrs& attrs) { infer_softmax(op, attrs); }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      for_softmax_rows<T, 1>(op, op.in(0).shape, attrs.axis, {op.in(0).ptr<T>()}, op.out(0).ptr<T>(), false,
                             [](const auto& in, T* y, int64_t n) { cloned<log_softmax_row<T>>(in[0], y, n); });
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      for_softmax_rows<T, 2>(op, op.shape(0), attrs.axis, {op.out(0).ptr<T>(), op.dout(0).ptr<T>()}, op.din(0).ptr<T>(),
                             op.din(0).accumulate, [](const auto& in, T* dx, int64_t n) {
                               cloned<log_softmax_gradient_row<T>>(in[0], in[1], dx, n);
                             });
    });
  }

  static std::vector<Sample> samples() {
    return softmax_samples(&log_softmax, [](auto in) {
      const Tensor centred = in[0] - max(in[0], {-1}, true);
      return std::vector{centred - log(sum(exp(centred), {-1}, true))};
    });
  }
};

}  // namespace

TRIL_REGISTER_OP(log_softmax, LogSoftmax)

Tensor log_softmax(const Tensor& x, int64_t axis) {
  return apply(registered::log_softmax, {x}, LogSoftmax::Attrs{axis});
}

}  // namespace tril
