// A weight that is packed once, in the order in which the processor's best path reads it, for products of a few rows at
// a time: y (rows, outputs) = x (rows, inputs) · Wᵀ [+ bias]. Most of their time goes into reading the weight. Its
// layout and the path that multiplies are known here alone. Each sum adds its inputs in order, so a row's result does
// not depend on the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/machine/matrix_unit.h"
#include "core/matmul/bf16_rows.h"
#include "core/matmul/panels.h"

namespace tril {

class PackedWeight {
 public:
  // Rows of a matrix (count, inputs), `stride` apart.
  struct Rows {
    const float* first;
    int64_t stride, count;
  };
  // Outputs are written in whole groups: each row of y, and a bias, must have room for padded(outputs) numbers.
  [[nodiscard]] static constexpr int64_t padded(int64_t outputs) { return panels::padded(outputs); }
  [[nodiscard]] static int64_t bytes(int64_t outputs, int64_t inputs, DType type);

  PackedWeight() = default;
  // Packs these rows one below the other, as f32 or bf16, into `memory`, which has bytes(…) bytes, 64-byte aligned. It
  // remains the caller's and must outlive this object. Throws for other types.
  PackedWeight(std::span<const Rows> rows, int64_t inputs, DType type, std::byte* memory);

  [[nodiscard]] int64_t inputs() const { return inputs_; }
  [[nodiscard]] int64_t outputs() const { return outputs_; }

 private:
  friend class PackedProducts;
  // One of these is used: wide_ for f32, and for bf16 tiles_ if there is a matrix unit, else narrow_.
  panels::Matrix<float> wide_{};
  panels::Matrix<bf16> narrow_{};
  bf16_rows::Matrix tiles_{};
  int64_t inputs_ = 0, outputs_ = 0;
};

// Multiplies `rows` rows by weights that are packed as one type, on one thread. Holds the matrix unit while it lives.
class PackedProducts {
 public:
  // `scratch` has scratch_bytes(…) bytes, 64-byte aligned, and remains the caller's. most_inputs: the most inputs of
  // any weight.
  PackedProducts(DType weights, int64_t rows, std::byte* scratch);
  [[nodiscard]] static int64_t scratch_bytes(DType weights, int64_t rows, int64_t most_inputs);
  // How many rows y must have room for: the matrix unit writes them in groups.
  [[nodiscard]] static int64_t rooms(int64_t rows) { return bf16_rows::rooms(rows); }

  [[nodiscard]] int64_t rows() const { return rows_; }
  // y = x · Wᵀ [+ bias]. Rows of x are row_x apart, rows of y row_y.
  void operator()(const float* x, int64_t row_x, const PackedWeight& w, const float* bias, float* y,
                  int64_t row_y) const;

 private:
  int64_t rows_;
  bf16* rounded_;
  std::optional<MatrixUnit> unit_;
};

}  // namespace tril
