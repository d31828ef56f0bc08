#include "core/matmul/split_gemm.h"

#include <algorithm>

#include "core/machine/cpu.h"
#include "core/matmul/panel_gemm.h"
#include "core/matmul/split_panels.h"

namespace tril {

#if defined(__x86_64__) && defined(__linux__)

namespace {

using namespace split_panels;

using tile_block::TileSums;

#define TRIL_MULTIPLY                                   \
  _tile_dpbf16ps(0, 4, 6);                              \
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7); \
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);    \
  if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7)
#define TRIL_LOAD_A(plane)                      \
  _tile_loadd(4, at + (plane)*kPlaneBytes, 64); \
  if constexpr (kRows == 2) _tile_loadd(5, at + a.panel + (plane)*kPlaneBytes, 64)
#define TRIL_LOAD_B(plane)                      \
  _tile_loadd(6, bt + (plane)*kPlaneBytes, 64); \
  if constexpr (kColumns == 2) _tile_loadd(7, bt + b.panel + (plane)*kPlaneBytes, 64)

constexpr int64_t kPlaneBytes = kPlaneSize * 2;

struct SplitUnit {
  using Operand = float;
  using Packed = uint16_t;
  using Ready = MatrixUnit;
  static constexpr int64_t kStepSize = split_panels::kStepSize, kTasks = 2, kPackedAtOnce = 1;
  static constexpr int64_t kInner = 512, kMostRows = 256;  // what is packed of A stays in L2
  static constexpr bool kInPlace = false, kMisfits = true, kHalves = false;

  static bool worth_a_team(const MatmulShape&) { return true; }

  // Bytes of B that are packed at a time: few enough for L2 if C stays there, too; otherwise more, so that C, which is
  // read once for each part of B, comes from memory less often.
  template <class Out>
  static int64_t group(const MatmulShape& s, int threads) {
    constexpr int64_t kNear = int64_t{1} << 20, kFar = int64_t{8} << 20;
    const int64_t budget = s.m * s.n * 4 <= kNear * threads ? kNear : kFar;
    return std::max(kInner, budget / (panels(s.n) * kSide * 6) / kInner * kInner);
  }

  template <bool kOfB>
  static bool pack_step(const float* x, int64_t row_length, bool along, int64_t side, int64_t inner, uint16_t* out) {
    return split_panels::pack_step<kOfB>(x, row_length, along, side, inner, out);
  }

  // Small products first, in an order that reloads few tiles. Meanwhile the next block of C is prefetched, a few rows
  // with each step: all at once they would evict what is in use.
  template <int kRows, int kColumns>
  TRIL_TILES static void multiply(const Panels& a, const Panels& b, int64_t count, const TileSums& c,
                                  const NextBlock& next_c) {
    tile_block::load<kRows, kColumns>(c);
    const char *at = a.data, *bt = b.data, *next = next_c.data;
    const int64_t rows_a_step = (kRows * kSide + count - 1) / count;
    for (int64_t i = 0; i < count; ++i, at += a.step, bt += b.step) {
      for (int64_t row = 0; row < rows_a_step; ++row, next += next_c.row) {
        __builtin_prefetch(next, 1);
        __builtin_prefetch(next + 64, 1);
      }
      TRIL_LOAD_B(2);
      TRIL_LOAD_A(0);
      TRIL_MULTIPLY;
      TRIL_LOAD_B(1);
      TRIL_MULTIPLY;
      TRIL_LOAD_A(1);
      TRIL_MULTIPLY;
      TRIL_LOAD_B(0);
      TRIL_MULTIPLY;
      TRIL_LOAD_A(2);
      TRIL_MULTIPLY;
      TRIL_LOAD_A(0);
      TRIL_MULTIPLY;
    }
    tile_block::store<kRows, kColumns>(c);
  }
};

#undef TRIL_MULTIPLY
#undef TRIL_LOAD_A
#undef TRIL_LOAD_B

}  // namespace

bool split_gemm_works() { return cpu_has(CpuLevel::amx); }

bool split_gemm_pays(const MatmulShape& shape) {
  constexpr int64_t kEnough = int64_t{1} << 28;  // multiplications
  return shape.m >= kEnough / (shape.n * shape.k) && std::min({shape.m, shape.n, shape.k}) >= 4 * kSide &&
         split_gemm_works();
}

void split_gemm(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c,
                const float* bias) {
  for (int64_t i = 0; i < shape.batch; ++i)
    PanelGemm<SplitUnit, float>(shape, a + i * shape.stride_a, b + i * shape.stride_b, c + i * shape.stride_c, bias)
        .run(context);
}

#else

bool split_gemm_works() { return false; }
bool split_gemm_pays(const MatmulShape&) { return false; }
void split_gemm(Context&, const MatmulShape&, const float*, const float*, float*, const float*) {}

#endif

}  // namespace tril
