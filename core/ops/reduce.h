// Reductions over axes: which element of the result each element goes to, and the checks and samples that sum, mean and
// max share.
#pragma once

#include <algorithm>

#include "core/ops/elementwise.h"

namespace tril {

struct ReduceAttrs {
  uint32_t axes = 0;  // bit i: axis i is reduced
  bool all = false, keep = false;
};

[[nodiscard]] inline ReduceAttrs reduce_attrs(const char* op, const Tensor& x, std::initializer_list<int64_t> axes,
                                              bool keep) {
  ReduceAttrs attrs{.axes = 0, .all = false, .keep = keep};
  const int rank = x.shape.rank();
  for (const int64_t axis : axes) {
    TRIL_CHECK(axis >= -rank && axis < rank, op, cat("axes of shape ", x.shape, ", from ", -rank, " to ", rank - 1),
               cat(axis));
    const uint32_t bit = 1u << (axis < 0 ? axis + rank : axis);
    TRIL_CHECK((attrs.axes & bit) == 0, op, "each axis once", cat("axis ", axis, " twice"));
    attrs.axes |= bit;
  }
  return attrs;
}

// Walks x in runs of run() elements. Either all of a run is reduced into one element of the result, or its elements go
// to as many consecutive elements of the result.
class ReducePlan {
 public:
  ReducePlan(const Shape& x, const ReduceAttrs& attrs) {
    int64_t step = 1;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      const bool goes = attrs.all || (attrs.axes >> axis & 1u) != 0;
      const auto at = static_cast<size_t>(rank_);
      if (rank_ > 0 && goes == (steps_[at - 1] == 0)) {
        dims_[at - 1] *= x[axis];
      } else {
        dims_[at] = x[axis];
        steps_[at] = goes ? 0 : step;
        ++rank_;
      }
      if (!goes) step *= x[axis];
    }
    if (rank_ == 0) {
      rank_ = 1;
      dims_[0] = 1;
    }
    results_ = step;
    count_ = x.count();
  }

  [[nodiscard]] int64_t run() const { return dims_[0]; }
  [[nodiscard]] bool run_is_reduced() const { return steps_[0] == 0; }
  [[nodiscard]] int64_t results() const { return results_; }
  [[nodiscard]] int64_t terms() const { return results_ == 0 ? 0 : count_ / results_; }
  // Calls body(offset in x, offset in the result) for every run, in order.
  template <class Body>
  void for_runs(Body&& body) const {
    if (count_ == 0) return;
    for (int64_t at = 0; at < count_; at += run()) {
      int64_t index = at / run(), result = 0;
      for (int axis = 1; axis < rank_; ++axis) {
        const auto i = static_cast<size_t>(axis);
        result += index % dims_[i] * steps_[i];
        index /= dims_[i];
      }
      body(at, result);
    }
  }

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> dims_{}, steps_{};  // innermost first; neighbours of one kind are merged
  int64_t results_ = 1, count_ = 0;
};

inline void infer_reduce(Infer& op, const ReduceAttrs& attrs) {
  op.expect_floating(0, "x");
  const Shape& x = op.shape(0);
  std::array<int64_t, kMaxRank> dims{};
  size_t rank = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool goes = attrs.all || (attrs.axes >> axis & 1u) != 0;
    if (!goes || attrs.keep) dims[rank++] = goes ? 1 : x[axis];
  }
  op.output(Shape(std::span<const int64_t>(dims.data(), rank)), op.in(0).dtype);
}

// Sums in f64, then times `factor`.
inline void forward_sum(const Forward& op, const ReduceAttrs& attrs, double factor) {
  const ReducePlan plan(op.in(0).shape, attrs);
  dispatch(op.name(), op.in(0).dtype, [&](auto type) {
    using T = decltype(type);
    const T* const x = op.in(0).ptr<T>();
    Scratch scratch(op.context().scratch());
    double* const sums = scratch.get<double>(plan.results());
    std::fill(sums, sums + plan.results(), 0.0);
    plan.for_runs([&](int64_t at, int64_t result) {
      for (int64_t i = 0; i < plan.run(); ++i)
        sums[plan.run_is_reduced() ? result : result + i] += static_cast<double>(x[at + i]);
    });
    for (int64_t i = 0; i < plan.results(); ++i) op.out(0).ptr<T>()[i] = static_cast<T>(sums[i] * factor);
  });
}

inline void backward_sum(const Backward& op, const ReduceAttrs& attrs, double factor) {
  const ReducePlan plan(op.shape(0), attrs);
  dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
    using T = decltype(type);
    const T* const dy = op.dout(0).ptr<T>();
    T* const dx = op.din(0).ptr<T>();
    plan.for_runs([&](int64_t at, int64_t result) {
      for (int64_t i = 0; i < plan.run(); ++i) {
        const T value = static_cast<T>(factor) * dy[plan.run_is_reduced() ? result : result + i];
        dx[at + i] = op.din(0).accumulate ? dx[at + i] + value : value;
      }
    });
  });
}

using ReduceFunction = Tensor (*)(const Tensor&, std::initializer_list<int64_t>, bool);

[[nodiscard]] inline std::vector<Sample> reduce_samples(ReduceFunction reduce, Tensor (*all)(const Tensor&),
                                                        SampleInput::Values values) {
  const auto sample = [&](const char* label, const Shape& shape, SampleFunction run) {
    return Sample{.label = label, .inputs = {{.shape = shape, .values = values}}, .run = std::move(run)};
  };
  return {sample("all", {2, 3, 5}, [=](auto in) { return std::vector{all(in[0])}; }),
          sample("a scalar", {}, [=](auto in) { return std::vector{all(in[0])}; }),
          sample("last axis", {3, 17}, [=](auto in) { return std::vector{reduce(in[0], {-1}, false)}; }),
          sample("first axis, kept", {4, 9}, [=](auto in) { return std::vector{reduce(in[0], {0}, true)}; }),
          sample("middle axis", {2, 3, 4}, [=](auto in) { return std::vector{reduce(in[0], {1}, false)}; }),
          sample("outer axes", {2, 3, 4, 2},
                 [=](auto in) {
                   return std::vector{reduce(in[0], {0, 2}, true)};
                 }),
          sample("no axis", {2, 3}, [=](auto in) { return std::vector{reduce(in[0], {}, false)}; }),
          Sample{.label = "an axis too far",
                 .inputs = {{.shape = {2, 3}}},
                 .run = [=](auto in) { return std::vector{reduce(in[0], {2}, false)}; },
                 .error = "expected axes of shape (2, 3), from -2 to 1, got 2"},
          Sample{.label = "an axis twice",
                 .inputs = {{.shape = {2, 3}}},
                 .run =
                     [=](auto in) {
                       return std::vector{reduce(in[0], {1, -1}, false)};
                     },
                 .error = "expected each axis once, got axis -1 twice"}};
}

}  // namespace tril
