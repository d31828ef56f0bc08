// The room core/ops: one op per file, with its shape rule, forward, backward and samples. Headers hold what several ops
// share.

// Ops of two operands with NumPy's broadcasting: axes are aligned from the end, and an axis of 1 (or a missing one) is
// repeated. F gives value(a, b), and gradient_a(dy, a, b) and gradient_b(dy, a, b), which are dy times the derivative
// with respect to a or b. The gradient of a repeated operand is summed over its repetitions.
// https://numpy.org/doc/stable/user/basics.broadcasting.html
#pragma once

#include <algorithm>

#include "core/ops/elementwise.h"

namespace tril {

// How the elements of the output map to those of the operands: axes that behave alike for both are merged, so that
// equal shapes become one long row. A stride of 0 repeats.
struct BroadcastPlan {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{}, stride_a{}, stride_b{};

  BroadcastPlan(const Shape& a, const Shape& b, const Shape& out) {
    std::array<int64_t, kMaxRank> step_a{}, step_b{};
    int64_t size_a = 1, size_b = 1;
    for (int axis = 1; axis <= out.rank(); ++axis) {  // from the end
      const auto at = static_cast<size_t>(out.rank() - axis);
      const int64_t dim_a = axis <= a.rank() ? a[-axis] : 1, dim_b = axis <= b.rank() ? b[-axis] : 1;
      step_a[at] = dim_a == 1 ? 0 : size_a;
      step_b[at] = dim_b == 1 ? 0 : size_b;
      size_a *= dim_a;
      size_b *= dim_b;
    }
    for (int axis = 0; axis < out.rank(); ++axis) {
      const auto at = static_cast<size_t>(axis);
      if (out[axis] == 1) continue;
      const auto last = static_cast<size_t>(rank - 1);
      if (rank > 0 && stride_a[last] == step_a[at] * out[axis] && stride_b[last] == step_b[at] * out[axis]) {
        dims[last] *= out[axis];
        stride_a[last] = step_a[at];
        stride_b[last] = step_b[at];
      } else {
        dims[static_cast<size_t>(rank)] = out[axis];
        stride_a[static_cast<size_t>(rank)] = step_a[at];
        stride_b[static_cast<size_t>(rank)] = step_b[at];
        ++rank;
      }
    }
    if (rank == 0) {
      rank = 1;
      dims[0] = 1;
    }
  }

  [[nodiscard]] int64_t row() const { return dims[static_cast<size_t>(rank - 1)]; }
  [[nodiscard]] int64_t step_a() const { return stride_a[static_cast<size_t>(rank - 1)]; }
  [[nodiscard]] int64_t step_b() const { return stride_b[static_cast<size_t>(rank - 1)]; }
  // Where row `index` of the output starts in both operands.
  [[nodiscard]] std::pair<int64_t, int64_t> offsets(int64_t index) const {
    int64_t offset_a = 0, offset_b = 0;
    for (int axis = rank - 2; axis >= 0; --axis) {
      const auto at = static_cast<size_t>(axis);
      offset_a += index % dims[at] * stride_a[at];
      offset_b += index % dims[at] * stride_b[at];
      index /= dims[at];
    }
    return {offset_a, offset_b};
  }
  // Calls body(a, b, out, n) for the parts of rows that make up [begin, end) of the output.
  template <class Body>
  void for_rows(int64_t begin, int64_t end, Body&& body) const {
    for (int64_t at = begin; at < end;) {
      const int64_t column = at % row(), n = std::min(row() - column, end - at);
      const auto [a, b] = offsets(at / row());
      body(a + column * step_a(), b + column * step_b(), at, n);
      at += n;
    }
  }
};

namespace broadcast {

template <class F, class T>
TRIL_INLINE void values(const T* a, int64_t step_a, const T* b, int64_t step_b, T* y, int64_t n) {
  if (step_a == 0) {
    for (int64_t i = 0; i < n; ++i) y[i] = F::value(*a, b[i * step_b]);
  } else if (step_b == 0) {
    for (int64_t i = 0; i < n; ++i) y[i] = F::value(a[i], *b);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = F::value(a[i], b[i]);
  }
}

// Writes the gradient of the first operand (of the second if by_b) to `row`.
template <class F, class T>
TRIL_INLINE void gradients(const T* a, int64_t step_a, const T* b, int64_t step_b, const T* dy, T* row, int64_t n,
                           bool by_b) {
  if (by_b) {
    for (int64_t i = 0; i < n; ++i) row[i] = F::gradient_b(dy[i], a[i * step_a], b[i * step_b]);
  } else {
    for (int64_t i = 0; i < n; ++i) row[i] = F::gradient_a(dy[i], a[i * step_a], b[i * step_b]);
  }
}

template <class T>
TRIL_INLINE void store(const T* row, T* out, int64_t n, bool accumulate) {
  if (accumulate) {
    for (int64_t i = 0; i < n; ++i) out[i] += row[i];
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = row[i];
  }
}

template <class T>
TRIL_INLINE void add_to_sums(const T* row, double* sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(row[i]);
}

}  // namespace broadcast

template <class F>
struct BroadcastOp {
  using Attrs = NoAttrs;
  static constexpr int64_t kTile = 512;

  static void infer(Infer& op, const Attrs&) {
    op.expect_floating(0, "a");
    op.expect_same_dtype(1, "b");
    const Shape &a = op.shape(0), &b = op.shape(1);
    Shape out = a.rank() >= b.rank() ? a : b;
    for (int axis = 1; axis <= out.rank(); ++axis) {
      const int64_t dim_a = axis <= a.rank() ? a[-axis] : 1, dim_b = axis <= b.rank() ? b[-axis] : 1;
      TRIL_CHECK(dim_a == dim_b || dim_a == 1 || dim_b == 1, op.name(),
                 "shapes that broadcast: axes equal or 1, from the end", cat(a, " and ", b));
      out = out.with(-axis, dim_a == 1 ? dim_b : dim_a);
    }
    op.output(out, op.in(0).dtype);
    if (F::kReadsOperands) {
      op.backward_reads_input(0);
      op.backward_reads_input(1);
    }
  }

  static void forward(const Forward& op, const Attrs&) {
    const BroadcastPlan plan(op.in(0).shape, op.in(1).shape, op.out(0).shape);
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T *const a = op.in(0).ptr<T>(), *const b = op.in(1).ptr<T>();
      T* const y = op.out(0).ptr<T>();
      parallel_for(op.threads(), op.out(0).count(), kElementGrain, [&](int64_t begin, int64_t end, int) {
        plan.for_rows(begin, end, [&](int64_t at_a, int64_t at_b, int64_t at, int64_t n) {
          cloned<broadcast::values<F, T>>(a + at_a, plan.step_a(), b + at_b, plan.step_b(), y + at, n);
        });
      });
    });
  }

  static void backward(const Backward& op, const Attrs&) {
    const BroadcastPlan plan(op.shape(0), op.shape(1), op.dout(0).shape);
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      for (int i = 0; i < 2; ++i) {
        if (!op.din(i)) continue;
        if (op.shape(i).count() == op.dout(0).count())
          write_gradient<decltype(type)>(op, plan, i);
        else
          reduce_gradient<decltype(type)>(op, plan, i);
      }
    });
  }

 private:
  // Calls body(row, offset in the operand, n) for [begin, end) of the output, kTile elements at a time; `row` holds dy
  // times the derivative.
  template <class T, class Body>
  static void for_gradients(const Backward& op, const BroadcastPlan& plan, int operand, int64_t begin, int64_t end,
                            Body&& body) {
    const T* const dy = op.dout(0).ptr<T>();
    const T *const a = F::kReadsOperands ? op.in(0).ptr<T>() : dy, *const b =
                                                                       F::kReadsOperands ? op.in(1).ptr<T>() : dy;
    T row[kTile];
    plan.for_rows(begin, end, [&](int64_t at_a, int64_t at_b, int64_t at, int64_t n) {
      for (int64_t j = 0; j < n; j += kTile) {
        const int64_t part = std::min(kTile, n - j);
        const int64_t first_a = at_a + j * plan.step_a(), first_b = at_b + j * plan.step_b();
        if constexpr (F::kReadsOperands) {
          cloned<broadcast::gradients<F, T>>(a + first_a, plan.step_a(), b + first_b, plan.step_b(), dy + at + j, row,
                                             part, operand == 1);
        } else {
          cloned<broadcast::gradients<F, T>>(dy, 0, dy, 0, dy + at + j, row, part, operand == 1);
        }
        body(row, operand == 0 ? first_a : first_b, part);
      }
    });
  }

  template <class T>
  static void write_gradient(const Backward& op, const BroadcastPlan& plan, int operand) {
    T* const dx = op.din(operand).ptr<T>();
    parallel_for(op.threads(), op.dout(0).count(), kElementGrain, [&](int64_t begin, int64_t end, int) {
      for_gradients<T>(op, plan, operand, begin, end, [&](const T* row, int64_t at, int64_t n) {
        cloned<broadcast::store<T>>(row, dx + at, n, op.din(operand).accumulate);
      });
    });
  }

  // The sums are made in f64. Each is made by one thread, in the order of the output: threads share columns, not rows.
  template <class T>
  static void reduce_gradient(const Backward& op, const BroadcastPlan& plan, int operand) {
    const int64_t count = op.shape(operand).count(), outer = op.dout(0).count() / std::max<int64_t>(1, plan.row());
    const int64_t step = operand == 0 ? plan.step_a() : plan.step_b();
    T* const dx = op.din(operand).ptr<T>();
    Scratch scratch(op.context().scratch());
    double* const sums = scratch.get<double>(count);
    std::fill(sums, sums + count, 0.0);
    parallel_for(step == 0 ? 1 : op.threads(), plan.row(), 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = 0; r < outer; ++r)
        for_gradients<T>(op, plan, operand, r * plan.row() + begin, r * plan.row() + end,
                         [&](const T* row, int64_t at, int64_t n) {
                           if (step != 0) return cloned<broadcast::add_to_sums<T>>(row, sums + at, n);
                           for (int64_t i = 0; i < n; ++i) sums[at] += static_cast<double>(row[i]);
                         });
    });
    for (int64_t i = 0; i < count; ++i)
      dx[i] = op.din(operand).accumulate ? dx[i] + static_cast<T>(sums[i]) : static_cast<T>(sums[i]);
  }
};

[[nodiscard]] inline std::vector<Sample> broadcast_samples(SampleInput::Values values, const SampleFunction& run) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{3, 5}, {3, 5}},       {{2, 3, 17}, {17}},  {{7}, {2, 3, 7}},       {{2, 1, 5}, {3, 1}}, {{4, 3}, {4, 1}},
      {{1, 4}, {3, 1}},       {{}, {2, 3}},        {{2, 3, 4}, {1, 3, 4}}, {{1}, {1}},          {{0, 3}, {3}},
      {{2, 1, 3}, {2, 4, 3}}, {{129, 130}, {130}}, {{129, 1}, {129, 130}}};
  std::vector<Sample> samples;
  for (const auto& [a, b] : shapes)
    samples.push_back({.label = cat(a, " and ", b),
                       .inputs = {{.shape = a, .values = values}, {.shape = b, .values = values}},
                       .run = run});
  samples.push_back({.label = "shapes that do not broadcast",
                     .inputs = {{.shape = {2, 3}}, {.shape = {2, 4}}},
                     .run = run,
                     .error = "expected shapes that broadcast: axes equal or 1, from the end, got (2, 3) and (2, 4)"});
  return samples;
}

}  // namespace tril
