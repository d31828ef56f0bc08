// Products of bf16 on every unit that this machine has, and widened, against a plain triple loop.
#include "core/matmul/bf16_gemm.h"

#include <bit>

#include "core/kernels/convert.h"
#include "support/products.h"

using namespace tril;
using namespace tril::test;

namespace {

std::vector<Bf16Unit> units() {
  std::vector<Bf16Unit> all;
  for (const Bf16Unit unit : {Bf16Unit::none, Bf16Unit::avx512, Bf16Unit::tiles})
    if (unit <= bf16_unit()) all.push_back(unit);
  return all;
}

void warn_of_missing_units() {
  if (units().size() < 3) WARN("no AMX here, or no AVX-512 BF16: only " << units().size() << " of 3 forms are checked");
}

std::vector<bf16> narrowed(const std::vector<float>& wide) {
  std::vector<bf16> narrow(wide.size());
  convert(wide.data(), narrow.data(), static_cast<int64_t>(wide.size()));
  return narrow;
}
std::vector<float> widened(const std::vector<bf16>& narrow) {
  std::vector<float> wide(narrow.size());
  convert(narrow.data(), wide.data(), static_cast<int64_t>(narrow.size()));
  return wide;
}

// Operands that bf16 holds exactly, as f32.
struct NarrowOperands : Operands<float> {
  explicit NarrowOperands(const Product& shape) : Operands<float>(shape) {
    for (std::vector<float>* const of : {&a, &b, &c}) *of = widened(narrowed(*of));
  }
};

std::vector<float> product(Bf16Unit unit, int threads, const Product& shape, const NarrowOperands& in,
                           bool narrow_result) {
  Context context({.threads = threads});
  const std::vector<bf16> a = narrowed(in.a), b = narrowed(in.b);
  const float* const bias = shape.bias ? in.bias.data() : nullptr;
  if (narrow_result) {
    std::vector<bf16> c = narrowed(in.c);
    bf16_gemm(unit, context, shape, a.data(), b.data(), c.data(), bias);
    return widened(c);
  }
  std::vector<float> c = in.c;
  bf16_gemm(unit, context, shape, a.data(), b.data(), c.data(), bias);
  return c;
}

void check(Bf16Unit unit, int threads, const Product& shape) {
  const NarrowOperands in(shape);
  INFO(cat("unit ", static_cast<int>(unit)));
  require_product(shape, in, product(unit, threads, shape, in, false), 1e-6);
  require_product(shape, in, product(unit, threads, shape, in, true), 1e-6, 0x1p-8);
}

}  // namespace

TEST_CASE("bf16 gemm: sizes around the tiles, with flags and gaps in turn") {
  warn_of_missing_units();
  int turn = 0;
  for (const Bf16Unit unit : units())
    for (const int64_t m : {1, 15, 16, 17, 31, 32, 33, 65, 300})
      for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 65})
        for (const int64_t k : {1, 2, 16, 31, 32, 33, 64, 530}) {
          check(unit, 1 + turn % 2, shape_of(m, n, k, turn % 16, {.a = turn % 3, .b = turn % 4, .c = turn % 5}));
          turn += 5;
        }
}

TEST_CASE("bf16 gemm: every form of whole tiles, of an inner axis of several parts, and of batches") {
  for (const Bf16Unit unit : units())
    for (int flags = 0; flags < 16; ++flags) {
      check(unit, 2, shape_of(64, 96, 128, flags, {}));
      check(unit, 2, shape_of(33, 40, 4200, flags, {}));
      Product shape = shape_of(40, 50, 60, flags, {});
      shape.batch = 2;
      shape.stride_a = 40 * 60;
      shape.stride_b = 60 * 50;
      shape.stride_c = 40 * 50;
      check(unit, 2, shape);
    }
}

TEST_CASE("bf16 gemm: the same bits at any number of threads") {
  for (const Bf16Unit unit : units())
    for (int flags = 0; flags < 16; ++flags)
      for (const auto& [m, k] : {std::pair{200, 2100}, {330, 500}}) {
        const Product shape = shape_of(m, 65, k, flags, {});
        const NarrowOperands in(shape);
        const bool narrow_result = std::popcount(static_cast<unsigned>(flags + k)) % 2 != 0;
        const std::vector<float> one = product(unit, 1, shape, in, narrow_result);
        CHECK(same_bits(product(unit, 2, shape, in, narrow_result), one));
        CHECK(same_bits(product(unit, 3, shape, in, narrow_result), one));
      }
}

TEST_CASE("bf16 gemm: infinities and NaN come out where they went in, and nowhere else") {
  const Product shape = shape_of(40, 50, 70, 0, {});
  for (const Bf16Unit unit : units())
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      NarrowOperands in(shape);
      in.a[3 * 70 + 69] = value;  // row 3, the last of the inner axis
      const std::vector<float> c = product(unit, 2, shape, in, true);
      for (size_t i = 0; i < c.size(); ++i) REQUIRE(std::isfinite(c[i]) == (i / 50 != 3));
    }
}

TEST_CASE("bf16 gemm: an inner size of 0 gives the bias or what was there") {
  Context context({.threads = 1});
  const Product shape = shape_of(2, 3, 0, 8, {});
  const std::vector<float> bias = {1, 2, 3};
  std::vector<bf16> c(6);
  matmul(context, shape, c.data(), c.data(), c.data(), bias.data());
  CHECK(widened(c) == std::vector<float>{1, 2, 3, 1, 2, 3});
}

TEST_CASE("bf16: rounds to nearest, ties to even, and keeps infinities and NaN") {
  const auto round = [](float x) { return static_cast<float>(bf16(x)); };
  CHECK(round(1.0f + 0x1p-8f) == 1.0f);                    // a tie, to the even neighbour below
  CHECK(round(1.0f + 3 * 0x1p-8f) == 1.0f + 4 * 0x1p-8f);  // and above
  CHECK(round(1.0f + 0x1.02p-8f) == 1.0f + 0x1p-7f);
  CHECK(std::isinf(round(std::numeric_limits<float>::infinity())));
  CHECK(std::isinf(round(std::numeric_limits<float>::max())));
  CHECK(std::isnan(round(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::signbit(round(-0.0f)));
}
