// Matrix products against a plain triple loop: every transposition, rows longer than they need be, sizes around the
// vector widths, what C held before.
#include "core/matmul/gemm.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/machine/onednn.h"
#include "core/matmul/small_gemm.h"
#include "core/matmul/split_gemm.h"
#include "support/catch.h"
#include "support/products.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr std::array<int64_t, 11> kSizes = {1, 2, 3, 7, 8, 9, 16, 17, 63, 64, 65};

template <class T>
void check(Context& context, const Product& shape) {
  const Operands<T> before(shape);
  std::vector<T> c = before.c;
  matmul(context, shape, before.a.data(), before.b.data(), c.data(), shape.bias ? before.bias.data() : nullptr);
  require_product(shape, before, c, sizeof(T) == 4 ? 1e-6 : 1e-15);
}

void check_both(Context& context, const Product& shape) {
  check<double>(context, shape);
  check<float>(context, shape);
}

}  // namespace

TEST_CASE("gemm: every transposition, accumulation and bias at sizes around the vector widths") {
  for (int flags = 0; flags < 16; ++flags) {
    Context context({.threads = 1 + flags % 2});
    for (const int64_t m : {1, 3, 17, 65})
      for (const int64_t n : {1, 16, 63})
        for (const int64_t k : {1, 9, 64}) check_both(context, shape_of(m, n, k, flags, {}));
  }
}

TEST_CASE("gemm: all pairs of sizes, with flags and gaps in turn") {
  int turn = 0;
  for (const int64_t m : kSizes) {
    Context context({.threads = 1});
    for (const int64_t n : kSizes)
      for (const int64_t k : {kSizes[static_cast<size_t>(turn % 11)], kSizes[static_cast<size_t>((turn + 5) % 11)]}) {
        check_both(context, shape_of(m, n, k, turn % 16, {.a = turn % 3, .b = turn % 4, .c = turn % 5}));
        ++turn;
      }
  }
}

TEST_CASE("gemm: every inner size from 1 to 40") {
  Context context({.threads = 2});
  for (int64_t k = 1; k <= 40; ++k) {
    check_both(context, shape_of(3, 17, k, static_cast<int>(k) % 16, {}));
    check_both(context, shape_of(16, 5, k, static_cast<int>(k + 7) % 16, {.a = 1, .b = 2, .c = 3}));
  }
}

TEST_CASE("gemm: an inner size of 0 gives the bias or zero, and empty results are left alone") {
  Context context({.threads = 2});
  for (int flags = 0; flags < 16; ++flags) check_both(context, shape_of(3, 5, 0, flags, {.c = 2}));
  for (int flags = 0; flags < 16; ++flags) {
    check_both(context, shape_of(0, 5, 3, flags, {}));
    check_both(context, shape_of(3, 0, 5, flags, {}));
  }
}

TEST_CASE("gemm: batches, with an operand of its own for each or one for all") {
  Context context({.threads = 2});
  for (int flags = 0; flags < 8; ++flags)
    for (const int shared : {0, 1, 2}) {
      Product shape = shape_of(5, 9, 7, flags, {});
      shape.batch = 3;
      shape.stride_a = shared == 1 ? 0 : 5 * 7;
      shape.stride_b = shared == 2 ? 0 : 7 * 9;
      shape.stride_c = 5 * 9;
      check_both(context, shape);
    }
}

TEMPLATE_TEST_CASE("gemm: the same bits at any number of threads", "", double, float) {
  for (int flags = 0; flags < 16; ++flags)
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {65, 63, 64}, {400, 70, 130}, {64, 256, 701}, {3, 500, 90}, {700, 5, 90}, {1, 300, 500}, {300, 1, 500}}) {
      Product shape = shape_of(m, n, k, flags, {});
      shape.batch = 2;
      shape.stride_a = m * k;
      shape.stride_b = k * n;
      shape.stride_c = m * n;
      const Operands<TestType> before(shape);
      std::vector<TestType> first;
      for (const int threads : {1, 2, 3, 5}) {
        Context context({.threads = threads});
        std::vector<TestType> c = before.c;
        matmul(context, shape, before.a.data(), before.b.data(), c.data(), shape.bias ? before.bias.data() : nullptr);
        if (threads == 1) {
          require_product(shape, before, c, sizeof(TestType) == 4 ? 1e-6 : 1e-15);
          first = c;
        }
        CHECK(same_bits(c, first));
      }
    }
}

// Where the gradient of a weight is summed by halves of the rows (core/matmul/gemm.cpp), at sizes that do not halve.
TEMPLATE_TEST_CASE("gemm: long inner axes with a transposed", "", double, float) {
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {192, 65, 701}, {128, 512, 257}, {512, 33, 300}, {65, 384, 256}, {64, 64, 999}})
    for (const int flags : {1, 3, 5, 9, 13}) {
      const Product shape = shape_of(m, n, k, flags, {.a = 1, .b = 2, .c = 3});
      for (const int threads : {1, 2, 3}) {
        Context context({.threads = threads});
        check<TestType>(context, shape);
      }
    }
}

namespace {

bool skips_split_gemm() {
  if (!split_gemm_works()) WARN("no AMX here: not checked");
  return !split_gemm_works();
}

std::vector<float> split_product(int threads, const Product& shape, const Operands<float>& in) {
  Context context({.threads = threads});
  std::vector<float> c = in.c;
  split_gemm(context, shape, in.a.data(), in.b.data(), c.data(), shape.bias ? in.bias.data() : nullptr);
  return c;
}

}  // namespace

TEST_CASE("gemm: in bfloat16 tiles it is as exact as in f32, at sizes around the tiles") {
  if (skips_split_gemm()) return;
  int turn = 0;
  for (const int64_t m : {1, 15, 16, 17, 31, 32, 33, 65, 300})
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 65})
      for (const int64_t k : {1, 16, 31, 32, 33, 64, 530}) {
        const Product shape = shape_of(m, n, k, turn % 16, {.a = turn % 3, .b = turn % 4, .c = turn % 5});
        const Operands<float> in(shape);
        require_product(shape, in, split_product(1 + turn % 2, shape, in), 1e-6);
        turn += 5;
      }
}

TEST_CASE("gemm: in bfloat16 tiles, a long inner axis, a B of many parts, and batches") {
  if (skips_split_gemm()) return;
  for (int flags = 0; flags < 16; ++flags) {
    Product shape = shape_of(33, 700, 1100, flags, {});
    Operands<float> in(shape);
    require_product(shape, in, split_product(2, shape, in), 1e-6);
    shape = shape_of(40, 50, 60, flags, {});
    shape.batch = 2;
    shape.stride_a = 40 * 60;
    shape.stride_b = 60 * 50;
    shape.stride_c = 40 * 50;
    in = Operands<float>(shape);
    require_product(shape, in, split_product(2, shape, in), 1e-6);
  }
}

TEST_CASE("gemm: in bfloat16 tiles the same bits come out at any number of threads") {
  if (skips_split_gemm()) return;
  for (int flags = 0; flags < 16; ++flags) {
    const Product shape = shape_of(330, 65, 1060, flags, {});
    const Operands<float> in(shape);
    const std::vector<float> one = split_product(1, shape, in);
    CHECK(same_bits(split_product(2, shape, in), one));
    CHECK(same_bits(split_product(3, shape, in), one));
  }
}

TEST_CASE("gemm: in bfloat16 tiles the same bits come out at any number of threads, whatever bfloat16 cannot hold") {
  if (skips_split_gemm()) return;
  for (const bool in_a : {true, false})
    for (int flags = 0; flags < 4; ++flags) {
      const Product shape = shape_of(330, 65, 1200, flags, {});
      Operands<float> in(shape);
      (in_a ? in.a : in.b)[4321] = std::numeric_limits<float>::infinity();
      const std::vector<float> one = split_product(1, shape, in);
      for (const int threads : {2, 3, 5}) CHECK(same_bits(split_product(threads, shape, in), one));
    }
}

TEST_CASE("gemm: in bfloat16 tiles, what bfloat16 cannot hold comes out as in f32") {
  if (skips_split_gemm()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
  const Product shape = shape_of(70, 40, 90, 0, {});
  for (const bool in_a : {true, false})
    for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), kMost, -kMost}) {
      Operands<float> in(shape);
      for (float& x : in_a ? in.b : in.a) x = std::fabs(x) * 0.01f;  // so that no sum goes beyond what is tested
      (in_a ? in.a : in.b)[1234] = value;
      const std::vector<float> c = split_product(2, shape, in);
      Context context({.threads = 1});
      std::vector<float> expected = in.c;
      onednn_sgemm(false, false, shape.m, shape.n, shape.k, 1.0f, in.a.data(), shape.lda, in.b.data(), shape.ldb, 0.0f,
                   expected.data(), shape.ldc);
      INFO(cat(value, in_a ? " in a" : " in b"));
      for (size_t i = 0; i < c.size(); ++i) {
        REQUIRE(std::isnan(c[i]) == std::isnan(expected[i]));
        if (std::isinf(expected[i])) REQUIRE(c[i] == expected[i]);
        if (std::isfinite(expected[i])) REQUIRE(c[i] == Approx(expected[i]).epsilon(1e-4).margin(1e-4));
      }
    }
}

TEST_CASE("gemm: in bfloat16 tiles, products beyond f32 are infinite, and results close to its end are finite") {
  if (skips_split_gemm()) return;
  for (const int64_t k : {1, 33, 700})
    for (const auto& [of_a, of_b] : std::vector<std::pair<float, float>>{
             {1e21f, 1e21f}, {-1e21f, 1e21f}, {3e19f, -1e19f}, {3.35e38f, 1.0f}, {1.0f, -3.39e38f}, {1e30f, 1e-25f}}) {
      const Product shape = shape_of(40, 33, k, 0, {});
      Operands<float> in(shape);
      // Terms of one sign, so that no order of adding them matters.
      const float each = std::fabs(of_a) > 1e37f || std::fabs(of_b) > 1e37f ? 1 / static_cast<float>(k) : 1.0f;
      for (float& x : in.a) x = of_a * (1.0f - 1e-3f * std::fabs(x)) * each;
      for (float& x : in.b) x = of_b;
      const std::vector<float> c = split_product(2, shape, in);
      INFO(cat(of_a, " times ", of_b, ", inner size ", k));
      for (int64_t i = 0; i < shape.m; ++i)
        for (int64_t j = 0; j < shape.n; ++j) {
          double exact = 0;
          for (int64_t l = 0; l < k; ++l)
            exact += static_cast<double>(in.a[static_cast<size_t>(i * shape.lda + l)]) *
                     static_cast<double>(in.b[static_cast<size_t>(l * shape.ldb + j)]);
          const float got = c[static_cast<size_t>(i * shape.ldc + j)];
          if (std::fabs(exact) > 3.41e38) REQUIRE(got == std::copysign(std::numeric_limits<float>::infinity(), exact));
          if (std::fabs(exact) < 3.40e38) REQUIRE(static_cast<double>(got) == Approx(exact).epsilon(1e-5));
        }
    }
}

namespace {

template <class T>
void check_tile(int64_t m, int64_t n, int64_t k, bool transpose_a, double alpha, double beta, const Gaps& gaps) {
  const int64_t lda = (transpose_a ? m : k) + gaps.a, ldb = n + gaps.b, ldc = n + gaps.c;
  const std::vector<T> a = noise<T>(lda * (transpose_a ? k : m), 1), b = noise<T>(ldb * k, 2);
  std::vector<T> c = noise<T>(ldc * m, 3);
  if (beta == 0)
    for (T& value : c) value = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> before = c;
  tile_matmul(transpose_a, m, n, k, static_cast<T>(alpha), a.data(), lda, b.data(), ldb, static_cast<T>(beta), c.data(),
              ldc);
  INFO(cat(m, " x ", k, " times ", k, " x ", n, transpose_a ? ", a transposed" : "", ", alpha ", alpha, ", beta ", beta,
           ", rows of ", lda, " ", ldb, " ", ldc));
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < ldc; ++column) {
      const auto at = static_cast<size_t>(row * ldc + column);
      if (column >= n) {
        REQUIRE(std::memcmp(&c[at], &before[at], sizeof(T)) == 0);
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t j = 0; j < k; ++j) {
        const double term = static_cast<double>(a[static_cast<size_t>(transpose_a ? j * lda + row : row * lda + j)]) *
                            static_cast<double>(b[static_cast<size_t>(j * ldb + column)]);
        sum += term;
        size += std::fabs(term);
      }
      const double old = beta == 0 ? 0.0 : beta * static_cast<double>(before[at]);
      const double bound = (sizeof(T) == 4 ? 1e-6 : 1e-15) * (std::fabs(alpha) * size + std::fabs(old)) + 1e-37;
      const double off = std::fabs(static_cast<double>(c[at]) - (alpha * sum + old));
      REQUIRE(off <= bound);
    }
}

}  // namespace

TEST_CASE("gemm: tiles, over alpha and beta, where beta 0 overwrites NaN") {
  int turn = 0;
  for (const int64_t m : kSizes)
    for (const int64_t n : kSizes)
      for (const int64_t k : {kSizes[static_cast<size_t>(turn % 11)], kSizes[static_cast<size_t>((turn + 4) % 11)]}) {
        const std::array<double, 4> factors = {1.0, 0.0, -0.5, 0.25};
        const Gaps gaps{.a = turn % 3, .b = turn % 4, .c = turn % 5};
        for (const bool transpose_a : {false, true}) {
          const double alpha = factors[static_cast<size_t>(turn % 4)],
                       beta = factors[static_cast<size_t>(turn / 4 % 4)];
          check_tile<float>(m, n, k, transpose_a, alpha, beta, gaps);
          check_tile<double>(m, n, k, transpose_a, alpha, beta, gaps);
        }
        ++turn;
      }
  for (int64_t k = 1; k <= 40; ++k) check_tile<float>(5, 9, k, k % 2 == 0, 1.0, 0.0, {});
}

namespace {

template <class T>
void check_transpose(int64_t rows, int64_t columns, int64_t gap_x, int64_t gap_out) {
  const int64_t row_x = columns + gap_x, row_out = rows + gap_out;
  const std::vector<T> x = noise<T>(rows * row_x, 1);
  std::vector<T> out = noise<T>(columns * row_out, 2);
  const std::vector<T> before = out;
  tile_transpose(x.data(), row_x, rows, columns, out.data(), row_out);
  INFO(cat(rows, " x ", columns, ", rows of ", row_x, " and ", row_out));
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < row_out; ++i) {
      const auto at = static_cast<size_t>(j * row_out + i);
      REQUIRE(out[at] == (i < rows ? x[static_cast<size_t>(i * row_x + j)] : before[at]));
    }
}

}  // namespace

TEST_CASE("gemm: tiles are transposed, at sizes around 16 and between gaps") {
  int turn = 0;
  for (const int64_t rows : {1, 15, 16, 17, 32, 48})
    for (const int64_t columns : {1, 15, 16, 17, 32, 64}) {
      check_transpose<float>(rows, columns, turn % 3, turn % 4);
      check_transpose<double>(rows, columns, turn % 3, turn % 4);
      ++turn;
    }
}
