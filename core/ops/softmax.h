// What softmax and log_softmax share: the walk over rows of any axis, and the samples.
#pragma once

#include <algorithm>

#include "core/kernels/math.h"
#include "core/kernels/rows.h"
#include "core/ops/elementwise.h"

namespace tril {

struct SoftmaxAttrs {
  int64_t axis;
};

// What is subtracted from each number of a row, so that no exponential overflows: its maximum `top`, or 0 if all are
// -inf (everything is masked).
template <class T>
TRIL_INLINE T shift_of(T top) {
  return top == -std::numeric_limits<T>::infinity() ? T{0} : top;
}

// Writes e^(x - shift) to y and returns the sum. Where all x are -inf, y and the sum are 0.
template <class T>
TRIL_INLINE T exp_row(const T* x, T* y, int64_t n, T shift) {
  for (int64_t i = 0; i < n; ++i) y[i] = math::exp_of_difference(x[i] - shift);
  return rows::sum(y, n);
}

inline void infer_softmax(Infer& op, const SoftmaxAttrs& attrs) {
  op.expect_floating(0, "x");
  op.expect_rank_at_least(0, "x", 1);
  (void)op.checked_axis(0, attrs.axis);
  op.output(op.shape(0), op.in(0).dtype);
  op.backward_reads_output(0);
}

// Calls body(inputs, result, n) for each row. A row along an inner axis is gathered first. The result is then written
// to its place in `output`, or added to it if accumulate.
template <class T, size_t kInputs, class Body>
void for_softmax_rows(const Forward& op, const Shape& shape, int64_t axis_attr,
                      const std::array<const T*, kInputs>& inputs, T* output, bool accumulate, Body&& body) {
  const auto axis = static_cast<int>(axis_attr < 0 ? axis_attr + shape.rank() : axis_attr);
  const int64_t n = shape[axis], inner = shape.count(axis + 1, shape.rank()), rows = shape.count(0, axis) * inner;
  if (n == 0) return;
  parallel_for(op.threads(), rows, std::max<int64_t>(1, kElementGrain / n),
               [&](int64_t begin, int64_t end, int thread) {
                 Scratch scratch(op.context().scratch(thread));
                 T* const gathered = scratch.get<T>(n * static_cast<int64_t>(kInputs + 1));
                 for (int64_t r = begin; r < end; ++r) {
                   const int64_t first = r / inner * n * inner + r % inner;
                   std::array<const T*, kInputs> row{};
                   for (size_t i = 0; i < kInputs; ++i) {
                     T* const copy = gathered + static_cast<int64_t>(i) * n;
                     row[i] = inner == 1 ? inputs[i] + first : copy;
                     if (inner != 1)
                       for (int64_t j = 0; j < n; ++j) copy[j] = inputs[i][first + j * inner];
                   }
                   T* const result = gathered + static_cast<int64_t>(kInputs) * n;
                   body(row, result, n);
                   for (int64_t j = 0; j < n; ++j) {
                     T& target = output[first + j * inner];
                     target = accumulate ? target + result[j] : result[j];
                   }
                 }
               });
}

[[nodiscard]] inline std::vector<Sample> softmax_samples(Tensor (*softmax)(const Tensor&, int64_t),
                                                         const SampleFunction& compose) {
  const auto sample = [&](const Shape& shape, int64_t axis) {
    Sample made{.label = cat(shape, " axis ", axis), .inputs = {{.shape = shape}}, .run = [=](auto in) {
                  return std::vector{softmax(in[0], axis)};
                }};
    if (axis == -1 && shape.count() > 0) made.compose = compose;
    return made;
  };
  Sample wide = sample({2, 5}, -1);
  wide.label = "far apart";
  wide.inputs[0].spread = 30.0;
  return {sample({7}, 0),
          sample({3, 17}, -1),
          sample({2, 33}, 1),
          sample({4, 5}, 0),
          sample({2, 3, 4}, 1),
          sample({1, 1}, -1),
          sample({0, 3}, -1),
          sample({3, 0}, -1),
          sample({1000, 17}, -1),
          wide,
          {.label = "a scalar",
           .inputs = {{.shape = {}}},
           .run = [=](auto in) { return std::vector{softmax(in[0], -1)}; },
           .error = "expected x with at least 1 axis, got shape ()"},
          {.label = "an axis too far",
           .inputs = {{.shape = {2, 3}}},
           .run = [=](auto in) { return std::vector{softmax(in[0], 2)}; },
           .error = "expected an axis of shape (2, 3), from -2 to 1, got 2"}};
}

}  // namespace tril
