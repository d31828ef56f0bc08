// Matrix products for a few rows at a time on the matrix unit: y (rows, outputs) = x (rows, inputs) · Wᵀ [+ bias]. Most
// of the time goes into reading W. W is bf16, x is rounded to bf16, and sums are f32. Each sum adds its inputs in
// order, so the result does not depend on how many rows there are.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/machine/matrix_unit.h"

namespace tril::bf16_rows {

// W in tiles of 16 outputs and 32 inputs, laid out as in core/matmul/bf16_panels.h; what lies beyond W is 0.
struct Matrix {
  const bf16* data = nullptr;
  int64_t inputs = 0, outputs = 0;
};

[[nodiscard]] int64_t elements(int64_t outputs, int64_t inputs);  // of a Matrix
[[nodiscard]] int64_t rounded_elements(int64_t rows, int64_t inputs);

// Copies weight (outputs, inputs), whose rows are row_stride apart, into a matrix of as many inputs, as its outputs
// first, first + 1, … The caller fills everything else in the matrix, including the padding of its tiles.
void pack(const float* weight, int64_t row_stride, int64_t outputs, int64_t inputs, bf16* matrix, int64_t first = 0);

// product() computes y. Rows of x are row_x apart, rows of y row_y. It writes whole groups of 16 outputs and
// rooms(rows) rows: y must have room for them, and a bias must have whole groups. The thread must hold a MatrixUnit of
// rows_of_unit(rows); `rounded` must have room for rounded_elements(rows, inputs).
[[nodiscard]] constexpr int64_t rows_of_unit(int64_t rows) { return rows < 16 ? rows : 16; }
[[nodiscard]] constexpr int64_t rooms(int64_t rows) { return rows < 16 ? rows : (rows + 15) / 16 * 16; }
void product(const float* x, int64_t row_x, int64_t rows, const Matrix& w, const float* bias, float* y, int64_t row_y,
             bf16* rounded);

}  // namespace tril::bf16_rows
