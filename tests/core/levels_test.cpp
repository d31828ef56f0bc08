// What the levels of a processor share (core/machine/cpu.h). Tests run at each level that a machine has
// (tests/at_level.sh), so a table of exact answers holds for every path.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "core/kernels/convert.h"
#include "core/machine/cpu.h"
#include "core/machine/onednn.h"
#include "core/matmul/bf16_gemm.h"
#include "core/matmul/small_gemm.h"
#include "core/matmul/split_gemm.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLargest = 0x1.fep127f;  // that bf16 can hold, too
const float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  float x, y, product;
};
// x beside zeros and y beside other numbers: each sum has one term that is not 0. Denormals count as 0, of operands and
// of results; inf times a denormal is then NaN.
const Case kCases[] = {{0x1p-130f, 1.0f, 0.0f},
                       {0x1p-130f, 0x1p100f, 0.0f},
                       {-0x1p-127f, -0x1p100f, 0.0f},
                       {1.0f, 0x1p-130f, 0.0f},
                       {0x1p-70f, 0x1p-70f, 0.0f},
                       {0x1p-64f, 0x1p-63f, 0.0f},
                       {0x1p-63f, 0x1p-63f, 0x1p-126f},
                       {0x1p-126f, 1.0f, 0x1p-126f},
                       {0x1p-100f, 0x1p20f, 0x1p-80f},
                       {0x1p-100f, 0x1p100f, 1.0f},
                       {0x1p120f, 0x1p7f, 0x1p127f},
                       {0x1p120f, 0x1p8f, kInfinity},
                       {-0x1p64f, 0x1p64f, -kInfinity},
                       {kLargest, 1.0f, kLargest},
                       {-kLargest, 1.0f, -kLargest},
                       {kLargest, 2.0f, kInfinity},
                       {kLargest, kLargest, kInfinity},
                       {kLargest, 0x1p-126f, 0x1.fep1f},
                       {0x1p49f, 0x1p50f, 0x1p99f},
                       {0x1p50f, 0x1p-50f, 1.0f},
                       {kInfinity, 1.0f, kInfinity},
                       {kInfinity, -0x1p-126f, -kInfinity},
                       {-kInfinity, kLargest, -kInfinity},
                       {kInfinity, 0.0f, kNaN},
                       {kInfinity, 0x1p-130f, kNaN},
                       {kNaN, 0.0f, kNaN},
                       {kNaN, 1.0f, kNaN}};
constexpr int64_t kCount = std::size(kCases), kSide = 64;  // kSide: only whole tiles and panels; kCount: others, too

bool same(float got, float expected) {
  return std::isnan(expected) ? std::isnan(got) : got == expected && !std::isnan(got);
}

using Product = std::function<void(const MatmulShape&, const float* a, const float* b, float* c)>;

// Puts the cases' x on the diagonal of A and their y in the rows of B; then the other way round.
void check_products(const std::string& path, const Product& product) {
  for (const int64_t inner : {kSide, kCount})
    for (const int64_t n : {kSide, int64_t{19}})
      for (const bool turned : {false, true}) {
        std::vector<float> xs(static_cast<size_t>(kCount * inner)), ys(static_cast<size_t>(inner * n)),
            c(static_cast<size_t>(kCount * n), 7.0f);
        for (int64_t i = 0; i < kCount; ++i) {
          xs[static_cast<size_t>(turned ? i * kCount + i : i * inner + i)] = kCases[i].x;
          for (int64_t j = 0; j < n; ++j) ys[static_cast<size_t>(turned ? j * inner + i : i * n + j)] = kCases[i].y;
        }
        const MatmulShape shape =
            turned ? MatmulShape{.m = n, .n = kCount, .k = inner, .lda = inner, .ldb = kCount, .ldc = kCount}
                   : MatmulShape{.m = kCount, .n = n, .k = inner, .lda = inner, .ldb = n, .ldc = n};
        product(shape, (turned ? ys : xs).data(), (turned ? xs : ys).data(), c.data());
        std::string wrong;
        for (int64_t i = 0; i < kCount; ++i)
          for (int64_t j = 0; j < n; ++j)
            if (const float got = c[static_cast<size_t>(turned ? j * kCount + i : i * n + j)];
                !same(got, kCases[i].product) && wrong.empty())
              wrong = cat(kCases[i].x, " times ", kCases[i].y, " gave ", got, ", not ", kCases[i].product);
        INFO(path << ", inner size " << inner << ", " << n << (turned ? " rows" : " columns"));
        CHECK(wrong.empty());
        if (!wrong.empty()) WARN(wrong);
      }
}

std::vector<bf16> narrow(const float* x, int64_t count) {
  std::vector<bf16> out(static_cast<size_t>(count));
  convert(x, out.data(), count);
  return out;
}

}  // namespace

TEST_CASE("levels: no more is used than the machine has and TRIL_MAX_ISA asks for") {
  CHECK(cpu().level <= cpu().machine);
  const char* const most = std::getenv("TRIL_MAX_ISA");
  bool above = false;
  for (const CpuLevel level :
       {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::avx512_bf16, CpuLevel::amx}) {
    CHECK(cpu_has(level) == (level <= cpu().level));
    if (above) CHECK_FALSE(cpu_has(level));
    above = above || (most != nullptr && name_of(level) == most);
  }
  CHECK(cpu_has(CpuLevel::amx) == (bf16_unit() == Bf16Unit::tiles));
  // oneDNN's products go with it.
  const std::string isa = cpu_isa();
  if (!cpu_has(CpuLevel::avx2)) CHECK_THAT(isa, !contains("AVX2") && !contains("AVX-512"));
  if (!cpu_has(CpuLevel::avx512)) CHECK_THAT(isa, !contains("AVX-512"));
  if (!cpu_has(CpuLevel::avx512_bf16)) CHECK_THAT(isa, !contains("BF16") && !contains("FP16"));
  if (!cpu_has(CpuLevel::amx)) CHECK_THAT(isa, !contains("AMX"));
}

TEST_CASE("levels: clones are those of the level") {
#if defined(__x86_64__) && !defined(TRIL_SANITIZE)
  Context context({.threads = 1});
  const double x = 1.0 + 0x1p-27, before = -1.0 - 0x1p-26;
  double sum = 0;
  matmul(context, {.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1}, &x, &x, &sum, &before);
  CHECK(sum == (cpu_has(CpuLevel::avx2) ? 0x1p-54 : 0.0));  // with AVX2 comes a product that is not rounded
#else
  WARN("clones are for x86-64 without sanitizers: not checked");
#endif
}

TEST_CASE("levels: products of denormals, infinities and huge numbers are the same on every path") {
  Context context({.threads = 1});
  check_products("matmul",
                 [&](const MatmulShape& s, const float* a, const float* b, float* c) { matmul(context, s, a, b, c); });
  check_products("tile_matmul", [&](const MatmulShape& s, const float* a, const float* b, float* c) {
    tile_matmul(false, s.m, s.n, s.k, 1.0f, a, s.lda, b, s.ldb, 0.0f, c, s.ldc);
  });
  if (split_gemm_works())
    check_products("split_gemm", [&](const MatmulShape& s, const float* a, const float* b, float* c) {
      split_gemm(context, s, a, b, c, nullptr);
    });
  else
    WARN("split_gemm: the Cpu has no AMX: not checked");
  for (const Bf16Unit unit : {Bf16Unit::none, Bf16Unit::avx512, Bf16Unit::tiles}) {
    if (unit > bf16_unit()) {
      WARN("bf16_gemm: the Cpu has no unit " << static_cast<int>(unit) << ": not checked");
      continue;
    }
    check_products(cat("bf16_gemm, unit ", static_cast<int>(unit)),
                   [&](const MatmulShape& s, const float* a, const float* b, float* c) {
                     bf16_gemm(unit, context, s, narrow(a, s.m * s.k).data(), narrow(b, s.k * s.n).data(), c, nullptr);
                   });
  }
}

TEST_CASE("levels: rounding to bf16 takes denormals for 0, and keeps its sign") {
  const std::vector<float> x = {0x1p-130f, -0x1p-130f, 0x1.fffffcp-127f, -0x1p-149f, 0x1p-126f, kInfinity,
                                -0.0f,     3e38f};
  const std::vector<uint16_t> expected = {0, 0x8000, 0, 0x8000, 0x0080, 0x7f80, 0x8000, 0x7f62};
  for (const size_t count : {size_t{8}, size_t{80}}) {
    std::vector<float> all;
    while (all.size() < count) all.insert(all.end(), x.begin(), x.end());
    std::vector<bf16> rounded(count);
    convert(all.data(), rounded.data(), static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) CHECK(rounded[i].bits == expected[i % x.size()]);
  }
}
