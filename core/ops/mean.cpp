#include "core/ops.h"
#include "core/ops/reduce.h"

namespace tril {
namespace {

struct Mean {
  using Attrs = ReduceAttrs;
  static void infer(Infer& op, const Attrs& attrs) {
    TRIL_CHECK(op.shape(0).count() > 0, op.name(), "at least one element", cat("shape ", op.shape(0)));
    infer_reduce(op, attrs);
  }
  static void forward(const Forward& op, const Attrs& attrs) {
    forward_sum(op, attrs, 1.0 / static_cast<double>(ReducePlan(op.in(0).shape, attrs).terms()));
  }
  static void backward(const Backward& op, const Attrs& attrs) {
    backward_sum(op, attrs, 1.0 / static_cast<double>(ReducePlan(op.shape(0), attrs).terms()));
  }
  static std::vector<Sample> samples() { return reduce_samples(&mean, &mean, SampleInput::Values::normal); }
};

}  // namespace

TRIL_REGISTER_OP(mean, Mean)

Tensor mean(const Tensor& x) { return apply(registered::mean, {x}, ReduceAttrs{.all = true}); }

Tensor mean(const Tensor& x, std::initializer_list<int64_t> axes, bool keep) {
  return apply(registered::mean, {x}, reduce_attrs("mean", x, axes, keep));
}

}  // namespace tril
