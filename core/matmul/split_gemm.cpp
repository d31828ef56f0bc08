#include "core/matmul/split_gemm.h"

#include <algorithm>
#include <atomic>

#include "core/machine/matrix_unit.h"
#include "core/machine/onednn.h"
#include "core/machine/parallel.h"
#include "core/matmul/split_panels.h"
#include "core/matmul/tile_block.h"

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
#define TRIL_LOAD_A(plane)                    \
  _tile_loadd(4, a + (plane)*kPlaneSize, 64); \
  if constexpr (kRows == 2) _tile_loadd(5, a + panel_a + (plane)*kPlaneSize, 64)
#define TRIL_LOAD_B(plane)                    \
  _tile_loadd(6, b + (plane)*kPlaneSize, 64); \
  if constexpr (kColumns == 2) _tile_loadd(7, b + panel_b + (plane)*kPlaneSize, 64)

// A block of kRows x kColumns tiles of C: what it was, plus the product of the panels. next_c: the block that comes
// after.
template <int kRows, int kColumns>
TRIL_TILES_INLINE void multiply_block(const uint16_t* a, int64_t panel_a, const uint16_t* b, int64_t panel_b,
                                      int64_t steps, const TileSums& c, const float* next_c, int64_t row_c) {
  tile_block::load<kRows, kColumns>(c);
  // Small products first, in an order that loads few tiles anew.
  // Meanwhile the next block of C is brought near, a few rows with each step: all at once they would be in the way.
  const auto* next = reinterpret_cast<const char*>(next_c);
  const int64_t rows_a_step = (kRows * kSide + steps - 1) / steps;
  for (int64_t i = 0; i < steps; ++i, a += kStepSize, b += kStepSize) {
    for (int64_t row = 0; row < rows_a_step; ++row, next += row_c * 4) {
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

#undef TRIL_MULTIPLY
#undef TRIL_LOAD_A
#undef TRIL_LOAD_B

constexpr int64_t kBlock = 2 * kSide;

struct Part {  // of a product: rows and inner numbers
  int64_t row, rows, k, inner;
};

class SplitGemm {
 public:
  SplitGemm(const MatmulShape& shape, const float* a, const float* b, float* c, const float* bias)
      : s_(shape), a_(a), b_(b), c_(c), bias_(bias) {}

  void run(Context& context) {
    const int64_t rows = std::clamp((s_.m / (2 * context.threads()) + kBlock - 1) / kBlock * kBlock, kBlock, kMostRows);
    const int64_t budget = s_.m * s_.n * 4 <= kNear * context.threads() ? kNear : kFar;
    const int64_t group = std::max(kInner, budget / (panels(s_.n) * kSide * 6) / kInner * kInner);
    Scratch scratch(context.scratch());
    packed_ = scratch.get<uint16_t>(panels(s_.n) * steps(std::min(group, s_.k)) * kStepSize);
    b_fits_ = scratch.get<bool>(group / kInner);
    for (int64_t k = 0; k < s_.k; k += group) {
      const int64_t inner = std::min(group, s_.k - k);
      pack_b(context, k, inner);
      parallel_tasks(context.threads(), (s_.m + rows - 1) / rows, [&](int64_t task, int thread) {
        Scratch own(context.scratch(thread));
        add_rows(own, {task * rows, std::min(rows, s_.m - task * rows), k, inner});
      });
    }
  }

 private:
  static constexpr int64_t kInner = 512;     // of A's panels at a time,
  static constexpr int64_t kMostRows = 256;  // so that what is packed of A stays in L2
  // What is packed of B at a time, in bytes: little enough for L2 where C stays there, too; else more, so that C, which
  // every part of B goes over again, comes from afar less often.
  static constexpr int64_t kNear = int64_t{1} << 20, kFar = int64_t{8} << 20;

  void pack_b(Context& context, int64_t k, int64_t inner) {
    panel_b_ = steps(inner) * kStepSize;
    std::fill_n(b_fits_, (inner + kInner - 1) / kInner, true);
    parallel_for(context.threads(), panels(s_.n) * steps(inner), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) pack_step_of_b(i, k, inner);
    });
  }

  // One by one in the order that they lie in memory.
  void pack_step_of_b(int64_t index, int64_t k, int64_t inner) const {
    const int64_t panel = s_.transpose_b ? index / steps(inner) : index % panels(s_.n),
                  step = s_.transpose_b ? index % steps(inner) : index / panels(s_.n);
    const int64_t column = panel * kSide, at = step * kStep;
    const float* const from = s_.transpose_b ? b_ + column * s_.ldb + k + at : b_ + (k + at) * s_.ldb + column;
    if (!pack_step<true>(from, s_.ldb, s_.transpose_b, std::min(kSide, s_.n - column), std::min(kStep, inner - at),
                         packed_ + panel * panel_b_ + step * kStepSize))
      std::atomic_ref(b_fits_[at / kInner]).store(false, std::memory_order_relaxed);
  }

  // Which blocks of rows do not fit, a bit each.
  [[nodiscard]] uint32_t pack_a(const Part& part, uint16_t* a) const {
    static_assert(kMostRows / kBlock <= 32);
    const int64_t all_steps = steps(part.inner), all_panels = panels(part.rows);
    uint32_t misfits = 0;
    for (int64_t i = 0; i < all_panels * all_steps; ++i) {
      const int64_t panel = s_.transpose_a ? i % all_panels : i / all_steps,
                    step = s_.transpose_a ? i / all_panels : i % all_steps;
      const int64_t row = panel * kSide, at = step * kStep;
      const bool fits =
          pack_step<false>(a_at(part.row + row, part.k + at), s_.lda, !s_.transpose_a, std::min(kSide, part.rows - row),
                           std::min(kStep, part.inner - at), a + (panel * all_steps + step) * kStepSize);
      misfits |= uint32_t{!fits} << (row / kBlock);
    }
    return misfits;
  }

  [[nodiscard]] const float* a_at(int64_t row, int64_t k) const {
    return s_.transpose_a ? a_ + k * s_.lda + row : a_ + row * s_.lda + k;
  }

  // C's rows += A's rows, from part.k on, times what is packed of B; on the first part, what C holds before the
  // product.
  void add_rows(Scratch& scratch, const Part& part) const {
    uint16_t* const a = scratch.get<uint16_t>(panels(part.rows) * steps(std::min(kInner, part.inner)) * kStepSize);
    const MatrixUnit tiles;
    for (int64_t done = 0; done < part.inner; done += kInner) {
      const Part piece{part.row, part.rows, part.k + done, std::min(kInner, part.inner - done)};
      const uint32_t misfits = b_fits_[done / kInner] ? pack_a(piece, a) : ~uint32_t{0};
      if (misfits != ~uint32_t{0}) multiply(a, packed_ + done / kStep * kStepSize, piece, misfits);
      // By blocks that do not depend on how the rows are shared, and so neither do the sums.
      for (int64_t row = 0; misfits != 0 && row < piece.rows; row += kBlock)
        if ((misfits >> (row / kBlock) & 1u) != 0)
          multiply_elsewhere({piece.row + row, std::min(kBlock, piece.rows - row), piece.k, piece.inner});
    }
  }

  void multiply(const uint16_t* a, const uint16_t* b, const Part& part, uint32_t misfits) const {
    const int64_t inner_steps = steps(part.inner), panel_a = inner_steps * kStepSize;
    for (int64_t column = 0; column < s_.n; column += kBlock)
      for (int64_t row = 0; row < part.rows; row += kBlock) {
        if ((misfits >> (row / kBlock) & 1u) != 0) continue;
        const bool last = row + kBlock >= part.rows;
        const float* const next =
            c_ + (part.row + (last ? 0 : row + kBlock)) * s_.ldc + (last ? column + kBlock : column);
        multiply_one(a + row / kSide * panel_a, panel_a, b + column / kSide * panel_b_, inner_steps, part.row + row,
                     std::min(kBlock, part.rows - row), column, std::min(kBlock, s_.n - column), part.k == 0, next);
      }
  }

  TRIL_TILES void multiply_one(const uint16_t* a, int64_t panel_a, const uint16_t* b, int64_t inner_steps, int64_t row,
                               int64_t rows, int64_t column, int64_t columns, bool first, const float* next) const {
    float* const c = c_ + row * s_.ldc + column;
    const bool adds = s_.accumulate || !first, biased = bias_ != nullptr && first;
    const bool tall = rows > kSide, wide = columns > kSide;
    alignas(64) float copy[kBlock * kBlock];
    TileSums block{adds ? c : biased ? bias_ + column : nullptr, adds ? s_.ldc * 4 : 0, c, s_.ldc * 4};
    const bool whole = rows % kSide == 0 && columns % kSide == 0;
    if (!whole || (adds && biased)) {
      for (int64_t i = 0; i < kBlock * kBlock; ++i) copy[i] = 0.0f;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          copy[i * kBlock + j] = (adds ? c[i * s_.ldc + j] : 0.0f) + (biased ? bias_[column + j] : 0.0f);
      block = {copy, kBlock * 4, copy, kBlock * 4};
    }
    asm volatile("" ::: "memory");  // GCC's tile loads do not say that they read memory
    if (tall)
      wide ? multiply_block<2, 2>(a, panel_a, b, panel_b_, inner_steps, block, next, s_.ldc)
           : multiply_block<2, 1>(a, panel_a, b, panel_b_, inner_steps, block, next, s_.ldc);
    else
      wide ? multiply_block<1, 2>(a, panel_a, b, panel_b_, inner_steps, block, next, s_.ldc)
           : multiply_block<1, 1>(a, panel_a, b, panel_b_, inner_steps, block, next, s_.ldc);
    if (block.to == copy)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) c[i * s_.ldc + j] = copy[i * kBlock + j];
  }

  void multiply_elsewhere(const Part& part) const {
    const bool adds = s_.accumulate || part.k > 0, biased = bias_ != nullptr && part.k == 0;
    float* const c = c_ + part.row * s_.ldc;
    if (biased)
      for (int64_t i = 0; i < part.rows; ++i)
        for (int64_t j = 0; j < s_.n; ++j) c[i * s_.ldc + j] = (adds ? c[i * s_.ldc + j] : 0.0f) + bias_[j];
    onednn_sgemm(s_.transpose_a, s_.transpose_b, part.rows, s_.n, part.inner, 1.0f, a_at(part.row, part.k), s_.lda,
                 s_.transpose_b ? b_ + part.k : b_ + part.k * s_.ldb, s_.ldb, adds || biased ? 1.0f : 0.0f, c, s_.ldc);
  }

  const MatmulShape& s_;
  const float *a_, *b_;
  float* c_;
  const float* bias_;
  uint16_t* packed_ = nullptr;  // B's panels
  int64_t panel_b_ = 0;         // between them
  bool* b_fits_ = nullptr;      // a piece of kInner each
};

}  // namespace

bool split_gemm_works() { return matrix_unit_works(); }

bool split_gemm_pays(const MatmulShape& shape) {
  constexpr int64_t kEnough = int64_t{1} << 28;  // multiplications
  return shape.m >= kEnough / (shape.n * shape.k) && std::min({shape.m, shape.n, shape.k}) >= 4 * kSide &&
         split_gemm_works();
}

void split_gemm(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c,
                const float* bias) {
  for (int64_t i = 0; i < shape.batch; ++i)
    SplitGemm(shape, a + i * shape.stride_a, b + i * shape.stride_b, c + i * shape.stride_c, bias).run(context);
}

#else

bool split_gemm_works() { return false; }
bool split_gemm_pays(const MatmulShape&) { return false; }
void split_gemm(Context&, const MatmulShape&, const float*, const float*, float*, const float*) {}

#endif

}  // namespace tril
