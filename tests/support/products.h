// Matrix products of any form, and what they should give: a plain triple loop in f64.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/matmul/gemm.h"
#include "support/catch.h"
#include "support/tensors.h"

namespace tril::test {

// How many elements lie between the rows of each matrix in memory.
struct Gaps {
  int64_t a = 0, b = 0, c = 0;
};

struct Product : MatmulShape {
  bool bias = false;
};

[[nodiscard]] inline Product shape_of(int64_t m, int64_t n, int64_t k, int flags, const Gaps& gaps) {
  Product shape{{.m = m, .n = n, .k = k}};
  shape.transpose_a = (flags & 1) != 0;
  shape.transpose_b = (flags & 2) != 0;
  shape.accumulate = (flags & 4) != 0;
  shape.bias = (flags & 8) != 0;
  shape.lda = (shape.transpose_a ? m : k) + gaps.a;
  shape.ldb = (shape.transpose_b ? k : n) + gaps.b;
  shape.ldc = n + gaps.c;
  return shape;
}

[[nodiscard]] inline int64_t length_of(int64_t rows, int64_t row_length, int64_t batch, int64_t stride) {
  return (batch - 1) * stride + rows * row_length;
}

template <class T>
struct Operands {
  std::vector<T> a, b, c, bias;
  explicit Operands(const MatmulShape& s)
      : a(noise<T>(length_of(s.transpose_a ? s.k : s.m, s.lda, s.batch, s.stride_a), 1)),
        b(noise<T>(length_of(s.transpose_b ? s.n : s.k, s.ldb, s.batch, s.stride_b), 2)),
        c(noise<T>(length_of(s.m, s.ldc, s.batch, s.stride_c), 3)),
        bias(noise<T>(s.n, 4)) {
    if (!s.accumulate)
      for (T& value : c) value = std::numeric_limits<T>::quiet_NaN();  // what is overwritten may have been anything
  }
};

// Requires the product in c, and that the elements between rows are untouched. Errors may grow with the terms of the
// sum and, if the result is stored in fewer bits, with the result.
template <class T>
void require_product(const Product& s, const Operands<T>& before, const std::vector<T>& c, double rounding,
                     double storing = 0.0) {
  double worst = 0;
  bool kept = true;
  for (int64_t i = 0; i < s.batch; ++i)
    for (int64_t row = 0; row < s.m; ++row)
      for (int64_t column = 0; column < s.ldc; ++column) {
        const auto at = static_cast<size_t>(i * s.stride_c + row * s.ldc + column);
        if (at >= c.size()) continue;
        if (column >= s.n) {
          kept = kept && std::memcmp(&c[at], &before.c[at], sizeof(T)) == 0;
          continue;
        }
        const auto value = [](const std::vector<T>& of, int64_t index) {
          return static_cast<double>(of[static_cast<size_t>(index)]);
        };
        const double bias = s.bias ? value(before.bias, column) : 0.0;
        const double old = s.accumulate ? static_cast<double>(before.c[at]) : 0.0;
        double sum = bias + old, size = std::fabs(bias) + std::fabs(old);
        for (int64_t j = 0; j < s.k; ++j) {
          const double term =
              value(before.a, i * s.stride_a + (s.transpose_a ? j * s.lda + row : row * s.lda + j)) *
              value(before.b, i * s.stride_b + (s.transpose_b ? column * s.ldb + j : j * s.ldb + column));
          sum += term;
          size += std::fabs(term);
        }
        const double off = (std::fabs(static_cast<double>(c[at]) - sum) - storing * std::fabs(sum)) / (size + 1e-30);
        worst = off <= worst ? worst : off;  // NaN stays
      }
  INFO(cat(s.m, " x ", s.k, " times ", s.k, " x ", s.n, s.transpose_a ? ", a transposed" : "",
           s.transpose_b ? ", b transposed" : "", s.accumulate ? ", accumulate" : "", s.bias ? ", bias" : "",
           ", rows of ", s.lda, " ", s.ldb, " ", s.ldc, ", batch ", s.batch));
  REQUIRE(worst <= rounding);
  REQUIRE(kept);
}

}  // namespace tril::test
