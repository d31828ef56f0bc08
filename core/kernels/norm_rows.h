// Layer normalisation of rows, forward and backward; shared by layer_norm and add_layer_norm.
// With h = (x - mean) · r and g = dy · weight: dx = r (g - mean(g) - h mean(g h)), dweight = sum of dy h, dbias = sum
// of dy, over rows.
#pragma once

#include <cmath>

#include "core/kernels/rows.h"
#include "core/kernels/sums.h"
#include "core/op.h"

namespace tril::norm_rows {

// Two passes: the variance is taken about the mean, never as a difference of squares. Returns (mean, 1 / sqrt(variance
// + epsilon)).
template <class T>
TRIL_INLINE std::pair<T, T> statistics(const T* x, int64_t n, T epsilon) {
  const T mean = rows::sum(x, n) / static_cast<T>(n);
  const T squares = rows::sum_of<T>(
      n, [ x, mean ](int64_t i, auto at) __attribute__((always_inline)) {
        const auto centred = at(x + i) - mean;
        return centred * centred;
      });
  return {mean, T{1} / std::sqrt(squares / static_cast<T>(n) + epsilon)};
}

template <class T, class Out>
TRIL_INLINE void normalise(const T* x, T mean, T r, const T* weight, const T* bias, Out* y, int64_t n) {
  if (bias != nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>((x[i] - mean) * r * weight[i] + bias[i]);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>((x[i] - mean) * r * weight[i]);
  }
}

// What the normed rows are stored as.
[[nodiscard]] inline DType stored(DType dtype, bool narrow) {
  return narrow && dtype == DType::f32 ? DType::bf16 : dtype;
}

// Calls body with a value of the rows' own type and one of the type that the normed rows are stored as.
template <class Body>
void dispatch_rows(const char* op, DType dtype, DType normed, Body&& body) {
  if (dtype == DType::f32 && normed == DType::bf16) return body(float{}, bf16{});
  dispatch(op, dtype, [&](auto type) { body(type, type); });
}

// dx of a row into dx (plus `add`, if there is one); its terms of dweight and dbias are added to those sums, if there
// are any.
template <class T>
TRIL_INLINE void gradient(const T* x, T mean, T r, const T* weight, const T* dy, const T* add, T* dx, T* dweight,
                          T* dbias, int64_t n) {
  const T sum_g = rows::dot(dy, weight, n);
  const T sum_gx = rows::sum_of<T>(
      n, [ x, mean, dy, weight ](int64_t i, auto at)
             __attribute__((always_inline)) { return at(dy + i) * at(weight + i) * (at(x + i) - mean); });
  const T mean_g = sum_g / static_cast<T>(n), mean_gh = sum_gx * r / static_cast<T>(n);
  if (add != nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = add[i] + r * (dy[i] * weight[i] - mean_g - (x[i] - mean) * r * mean_gh);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = r * (dy[i] * weight[i] - mean_g - (x[i] - mean) * r * mean_gh);
  }
  if (dweight != nullptr)
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * r);
  if (dbias != nullptr)
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
}

// Operand `first` is the weight, the next one, if given, the bias.
inline void infer_weights(Infer& op, int first, int64_t width, double epsilon) {
  TRIL_CHECK(epsilon > 0.0 && std::isfinite(epsilon), op.name(), "epsilon > 0", cat(epsilon));
  TRIL_CHECK(width > 0, op.name(), "rows of at least one element", cat("shape ", op.shape(0)));
  const char* const names[] = {"weight", "bias"};
  for (int i = first; i < op.count(); ++i) {
    const char* const name = names[i - first];
    op.expect_same_dtype(i, name);
    TRIL_CHECK(op.shape(i) == Shape{width}, op.name(), cat(name, " (", width, ") for x ", op.shape(0)),
               cat(op.shape(i)));
  }
  op.backward_reads_input(first);
}

// The sums of dweight and dbias over fixed chunks of rows, and their end.
template <class T>
class WeightSums {
 public:
  WeightSums(const Backward& op, int first, int64_t width)
      : scratch_(op.context().scratch()),
        width_(width),
        weight_(op.din(first)),
        bias_(op.count() > first + 1 ? op.din(first + 1) : Gradient{}) {
    if (weight_) weights_ = zeros();
    if (bias_) biases_ = zeros();
  }
  [[nodiscard]] T* weight(int64_t chunk) const { return weights_ == nullptr ? nullptr : weights_ + chunk * width_; }
  [[nodiscard]] T* bias(int64_t chunk) const { return biases_ == nullptr ? nullptr : biases_ + chunk * width_; }
  void finish() const {
    if (weight_) finish_sums(weights_, kReductionChunks, width_, weight_.ptr<T>(), weight_.accumulate);
    if (bias_) finish_sums(biases_, kReductionChunks, width_, bias_.ptr<T>(), bias_.accumulate);
  }

 private:
  T* zeros() {
    T* const sums = scratch_.template get<T>(kReductionChunks * width_);
    std::fill(sums, sums + kReductionChunks * width_, T{0});
    return sums;
  }
  Scratch scratch_;
  int64_t width_;
  Gradient weight_, bias_;
  T *weights_ = nullptr, *biases_ = nullptr;
};

}  // namespace tril::norm_rows
