#include <limits>

#include "core/ops.h"
#include "core/ops/reduce.h"

namespace tril {
namespace {

struct Max {
  using Attrs = ReduceAttrs;

  static void infer(Infer& op, const Attrs& attrs) {
    TRIL_CHECK(op.shape(0).count() > 0, op.name(), "at least one element", cat("shape ", op.shape(0)));
    infer_reduce(op, attrs);
    op.backward_reads_input(0);
    op.backward_reads_output(0);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const ReducePlan plan(op.in(0).shape, attrs);
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const x = op.in(0).ptr<T>();
      T* const y = op.out(0).ptr<T>();
      std::fill(y, y + plan.results(), -std::numeric_limits<T>::infinity());
      for_elements(plan, [&](int64_t at, int64_t result) {
        if (x[at] > y[result] || x[at] != x[at]) y[result] = x[at];  // NaN wins, and stays
      });
    });
  }

  // Elements that tie for the maximum share its gradient; if it is NaN, all NaNs do. They are counted in f64, which
  // holds any count.
  static void backward(const Backward& op, const Attrs& attrs) {
    const ReducePlan plan(op.shape(0), attrs);
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T *const x = op.in(0).ptr<T>(), *const y = op.out(0).ptr<T>(), *const dy = op.dout(0).ptr<T>();
      T* const dx = op.din(0).ptr<T>();
      Scratch scratch(op.context().scratch());
      double* const ties = scratch.get<double>(plan.results());
      std::fill(ties, ties + plan.results(), 0.0);
      for_elements(plan, [&](int64_t at, int64_t result) { ties[result] += ties_with(x[at], y[result]) ? 1.0 : 0.0; });
      for_elements(plan, [&](int64_t at, int64_t result) {
        const T value =
            ties_with(x[at], y[result]) ? static_cast<T>(static_cast<double>(dy[result]) / ties[result]) : T{0};
        dx[at] = op.din(0).accumulate ? dx[at] + value : value;
      });
    });
  }

  static std::vector<Sample> samples() {
    auto samples = reduce_samples(&max, &max, SampleInput::Values::spaced);
    samples.push_back({.label = "nothing",
                       .inputs = {{.shape = {0}}},
                       .run = [](auto in) { return std::vector{max(in[0])}; },
                       .error = "expected at least one element"});
    return samples;
  }

 private:
  template <class T>
  static bool ties_with(T x, T top) {
    return x == top || (x != x && top != top);
  }

  template <class Body>
  static void for_elements(const ReducePlan& plan, Body&& body) {
    plan.for_runs([&](int64_t at, int64_t result) {
      for (int64_t i = 0; i < plan.run(); ++i) body(at + i, plan.run_is_reduced() ? result : result + i);
    });
  }
};

}  // namespace

TRIL_REGISTER_OP(max, Max)

Tensor max(const Tensor& x) { return apply(registered::max, {x}, ReduceAttrs{.all = true}); }

Tensor max(const Tensor& x, std::initializer_list<int64_t> axes, bool keep) {
  return apply(registered::max, {x}, reduce_attrs("max", x, axes, keep));
}

}  // namespace tril
