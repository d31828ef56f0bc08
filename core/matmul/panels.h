// Matrix products for a few rows at a time: y (rows, outputs) = x (rows, inputs) · W. Most of the time goes into
// reading the matrix. It lies in panels of 64 outputs; a panel holds its 64 numbers of input 0, then those of input 1,
// and so on, so that its sums stay in registers while the matrix streams by. Rows of x are taken one, four or eight at
// a time; each sum adds its inputs in order, so the result does not depend on how rows are grouped. A matrix of bf16 is
// half as much to read; its numbers are widened on the way.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/machine/clones.h"

namespace tril::panels {

inline constexpr int64_t kPanel = 64;  // outputs
inline constexpr int64_t kLanes = 16;  // outputs are written in groups of this many

[[nodiscard]] constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
// How many numbers a row of y must have room for, and a bias must have: whole groups of outputs.
[[nodiscard]] constexpr int64_t padded(int64_t outputs) { return round_up(outputs, kLanes); }
[[nodiscard]] constexpr int64_t elements(int64_t outputs, int64_t inputs) { return round_up(outputs, kPanel) * inputs; }

// Where input i of output j lies: data[j / 64 * panel_stride + i * input_stride + j % 64].
template <class T>
struct Matrix {
  const T* data;
  int64_t inputs, outputs;
  int64_t input_stride, panel_stride;
};

template <class T>
[[nodiscard]] Matrix<T> packed(const T* data, int64_t outputs, int64_t inputs) {
  return {data, inputs, outputs, kPanel, kPanel * inputs};
}

// Copies weight (outputs, inputs), whose rows are row_stride apart, into the matrix as its outputs first, first + 1, …
// The caller fills everything else in the matrix, including its padding.
template <class T, class W>
void pack(const T* weight, int64_t row_stride, int64_t outputs, int64_t inputs, W* matrix, int64_t first = 0) {
  for (int64_t j = 0; j < outputs; ++j) {
    W* const column = matrix + (first + j) / kPanel * kPanel * inputs + (first + j) % kPanel;
    for (int64_t i = 0; i < inputs; ++i) column[i * kPanel] = static_cast<W>(weight[j * row_stride + i]);
  }
}

// A register tile: kRows x kWidth sums stay in registers over all inputs.
template <int kRows, int kWidth, class T, class W>
TRIL_INLINE void block(const T* x, int64_t row_x, const W* w, int64_t inputs, int64_t input_stride, const T* bias, T* y,
                       int64_t row_y) {
  T sums[kRows][kWidth] = {};
  for (int64_t i = 0; i < inputs; ++i)
    for (int r = 0; r < kRows; ++r) {
      const T factor = x[r * row_x + i];
      for (int j = 0; j < kWidth; ++j) sums[r][j] += factor * static_cast<T>(w[i * input_stride + j]);
    }
  if (bias != nullptr)
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kWidth; ++j) sums[r][j] += bias[j];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kWidth; ++j) y[r * row_y + j] = sums[r][j];
}

// Computes kWidth outputs, from `first` on, of all rows; kMost rows at a time, as many as the registers hold sums of.
template <int kMost, int kWidth, class T, class W>
TRIL_INLINE void columns(const T* x, int64_t row_x, int64_t rows, const Matrix<W>& w, int64_t first, const T* bias,
                         T* y, int64_t row_y) {
  const W* const part = w.data + first / kPanel * w.panel_stride + first % kPanel;
  const T* const part_bias = bias == nullptr ? nullptr : bias + first;
  int64_t row = 0;
  if constexpr (kMost > 4)
    for (; row + kMost <= rows; row += kMost)
      block<kMost, kWidth>(x + row * row_x, row_x, part, w.inputs, w.input_stride, part_bias, y + row * row_y + first,
                           row_y);
  for (; row + 4 <= rows; row += 4)
    block<4, kWidth>(x + row * row_x, row_x, part, w.inputs, w.input_stride, part_bias, y + row * row_y + first, row_y);
  for (; row < rows; ++row)
    block<1, kWidth>(x + row * row_x, row_x, part, w.inputs, w.input_stride, part_bias, y + row * row_y + first, row_y);
}

// y = x · W [+ bias]. Rows of x lie row_x apart, those of y row_y and have room for padded(outputs). kMost is 4, or 8
// for code that only runs where there are registers enough for 8 x 32 sums.
template <int kMost = 4, class T, class W>
TRIL_INLINE void product(const T* x, int64_t row_x, int64_t rows, const Matrix<W>& w, const T* bias, T* y,
                         int64_t row_y) {
  int64_t first = 0;
  if (rows == 1)
    for (; first + 64 <= w.outputs; first += 64) columns<4, 64>(x, row_x, 1, w, first, bias, y, row_y);
  for (; first + 32 <= padded(w.outputs); first += 32) columns<kMost, 32>(x, row_x, rows, w, first, bias, y, row_y);
  if (first < w.outputs) columns<kMost, 16>(x, row_x, rows, w, first, bias, y, row_y);
}

}  // namespace tril::panels
