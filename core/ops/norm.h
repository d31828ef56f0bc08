// What layer_norm and add_layer_norm have in common as ops: types, the rule of their weights, and the sums of these
// weights' gradients.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/autograd/op.h"
#include "core/kernels/norm_rows.h"
#include "core/kernels/sums.h"

namespace tril::norm_rows {

// Calls body with a value of the rows' own type and one of the type that the normed rows are stored as.
template <class Body>
void dispatch_rows(const char* op, DType dtype, DType normed, Body&& body) {
  if (dtype == DType::f32 && normed == DType::bf16) return body(float{}, bf16{});
  dispatch(op, dtype, [&](auto type) { body(type, type); });
}

// Checks the weight, operand `first`, and the bias, which is the next operand if there is one.
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

// The sums of dweight and dbias over fixed chunks of rows; finish() adds the chunks up into the gradients.
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
