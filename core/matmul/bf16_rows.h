// Matrix products for a few rows at a time, where reading the matrix is the work, on the matrix unit: y (rows, outputs)
// = x (rows, inputs) · Wᵀ [+ bias], W in bf16 and x rounded to it, sums in f32. Each sum adds its inputs in order, so
// the result does not depend on how many rows there are.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/machine/matrix_unit.h"

namespace tril::bf16_rows {

// W in tiles of 16 outputs and 32 inputs, as core/matmul/bf16_panels.h lays them; what lies beyond W is 0.
struct Matrix {
  const bf16* data = nullptr;
  int64_t inputs = 0, outputs = 0;
};

[[nodiscard]] int64_t elements(int64_t outputs, int64_t inputs);  // of a Matrix
[[nodiscard]] int64_t rounded_elements(int64_t rows, int64_t inputs);

// Puts weight (outputs, inputs), its rows row_stride apart, in a matrix of so many inputs as outputs first, first + 1,
// … The rest, what fills tiles up too, is the caller's to fill.
void pack(const float* weight, int64_t row_stride, int64_t outputs, int64_t inputs, bf16* matrix, int64_t first = 0);

// Rows of x lie row_x apart. Those of y lie row_y apart; they have room for whole groups of 16 outputs, and y for
// rooms(rows) of them. A bias has whole groups, too. The thread has a MatrixUnit of rows_of_unit(rows), and `rounded`
// is room for rounded_elements.
[[nodiscard]] constexpr int64_t rows_of_unit(int64_t rows) { return rows < 16 ? rows : 16; }
[[nodiscard]] constexpr int64_t rooms(int64_t rows) { return rows < 16 ? rows : (rows + 15) / 16 * 16; }
void product(const float* x, int64_t row_x, int64_t rows, const Matrix& w, const float* bias, float* y, int64_t row_y,
             bf16* rounded);

}  // namespace tril::bf16_rows
