#include "core/matmul/bf16_gemm.h"

#include <algorithm>

#include "core/kernels/convert.h"
#include "core/machine/parallel.h"
#include "core/matmul/bf16_tiles.h"

namespace tril {
namespace {

// From begin to end of a matrix of a batch, gaps between its rows included.
int64_t extent(int64_t rows, int64_t columns, int64_t row_length) { return (rows - 1) * row_length + columns; }

float* widened(Context& context, Scratch& scratch, const bf16* x, int64_t count) {
  float* const wide = scratch.get<float>(count);
  parallel_for(context.threads(), count, int64_t{1} << 16,
               [&](int64_t begin, int64_t end, int) { convert(x + begin, wide + begin, end - begin); });
  return wide;
}

// Without an instruction for it: one matrix of the batch after the other.
template <class Out>
void multiply_widened(Context& context, MatmulShape s, const bf16* a, const bf16* b, Out* c, const float* bias) {
  const int64_t batch = s.batch;
  s.batch = 1;
  for (int64_t i = 0; i < batch; ++i) {
    Scratch scratch(context.scratch());
    const float* const wide_a = widened(context, scratch, a + i * s.stride_a,
                                        s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda));
    const float* const wide_b = widened(context, scratch, b + i * s.stride_b,
                                        s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb));
    Out* const out = c + i * s.stride_c;
    if constexpr (std::is_same_v<Out, float>) {
      matmul(context, s, wide_a, wide_b, out, bias);
    } else {
      float* const sums = scratch.get<float>(s.m * s.n);
      MatmulShape plain = s;
      plain.ldc = s.n;
      plain.accumulate = false;
      matmul(context, plain, wide_a, wide_b, sums, bias);
      for (int64_t row = 0; row < s.m; ++row)
        (s.accumulate ? convert_and_add<float, Out> : convert<float, Out>)(sums + row * s.n, out + row * s.ldc, s.n);
    }
  }
}

}  // namespace

#if defined(__x86_64__) && defined(__linux__)

namespace {

using namespace bf16_panels;

using bf16_tiles::kBlock;
using bf16_tiles::Panels;
using tile_block::TileSums;

struct TilesUnit {
  using Ready = MatrixUnit;

  template <int kRows, int kColumns>
  static void multiply(const Panels& a, const Panels& b, int64_t count, const TileSums& c) {
    bf16_tiles::multiply<kRows, kColumns>(a, b, count, c);
  }
};

struct Avx512Unit {
  struct Ready {
    Ready() {}  // nothing to make ready
  };

  template <int kRows, int kColumns>
  TRIL_BF16 static void multiply(const Panels& a, const Panels& b, int64_t count, const TileSums& c) {
    constexpr int64_t kAtOnce = 8;  // rows
    for (int64_t row = 0; row < kRows * kSide; row += kAtOnce) {
      __m512 sums[kAtOnce][kColumns];
#pragma GCC unroll 8
      for (int64_t r = 0; r < kAtOnce; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kColumns; ++v)
          sums[r][v] = c.from == nullptr
                           ? _mm512_setzero_ps()
                           : _mm512_loadu_ps(reinterpret_cast<const char*>(c.from) + (row + r) * c.from_bytes + 64 * v);
      const char *at = a.data + row / kSide * a.panel + row % kSide * a.row, *bt = b.data;
      for (int64_t i = 0; i < count; ++i, at += a.step, bt += b.step)
        for (int64_t p = 0; p < kSide; ++p) {
          __m512bh columns[kColumns];
#pragma GCC unroll 2
          for (int v = 0; v < kColumns; ++v) columns[v] = (__m512bh)_mm512_load_si512(bt + p * 64 + v * b.panel);
#pragma GCC unroll 8
          for (int64_t r = 0; r < kAtOnce; ++r) {
            int32_t pair;
            __builtin_memcpy(&pair, at + r * a.row + 4 * p, 4);
#pragma GCC unroll 2
            for (int v = 0; v < kColumns; ++v)
              sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)_mm512_set1_epi32(pair), columns[v]);
          }
        }
#pragma GCC unroll 8
      for (int64_t r = 0; r < kAtOnce; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kColumns; ++v)
          _mm512_storeu_ps(reinterpret_cast<char*>(c.to) + (row + r) * c.to_bytes + 64 * v, sums[r][v]);
    }
  }
};

// `sums` (kBlock apart) into C, where they fill rows x columns of it.
TRIL_BF16 void store(const float* sums, int64_t rows, int64_t columns, bool add, float* c, int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] = sums[i * kBlock + j] + (add ? c[i * ldc + j] : 0.0f);
}
TRIL_BF16 void store(const float* sums, int64_t rows, int64_t columns, bool add, bf16* c, int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += kSide) {
      const auto lanes = static_cast<__mmask16>(first_lanes(columns - j));
      bf16* const out = c + i * ldc + j;
      __m512 sum = _mm512_loadu_ps(sums + i * kBlock + j);
      if (add) {
        const __m512i before = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, out));
        sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(before, 16)));
      }
      _mm256_mask_storeu_epi16(out, lanes, (__m256i)_mm512_cvtneps_pbh(sum));
    }
}

struct Part {  // of a product: rows of C and numbers of the inner axis
  int64_t row, rows, k, inner;
  bool first;  // to write these rows
};

template <class Unit, class Out>
class Bf16Gemm {
 public:
  Bf16Gemm(const MatmulShape& shape, const bf16* a, const bf16* b, Out* c, const float* bias)
      : s_(shape), a_(a), b_(b), c_(c), bias_(bias) {}

  // C in bf16 takes its sums whole, C in f32 by groups of the inner axis whose panels stay in cache.
  void run(Context& context) {
    const int threads = s_.m * s_.n < kWorthATeam / s_.k ? 1 : context.threads();
    const int64_t group = std::is_same_v<Out, float> ? std::min(s_.k, kGroup) : s_.k;
    const int64_t rows = std::clamp((s_.m / (4 * threads) + kBlock - 1) / kBlock * kBlock, kBlock, kMostRows);
    Scratch scratch(context.scratch());
    packed_ = scratch.get<bf16>(panels(s_.n) * steps(group) * kTileSize);
    for (group_ = 0; group_ < s_.k; group_ += group) {
      const int64_t inner = std::min(group, s_.k - group_);
      pack_b(threads, group_, inner);
      if (std::is_same_v<Out, float> && s_.transpose_a && s_.k >= kLongInner && s_.k == group && s_.m >= 2 * kBlock)
        return multiply_by_halves(context, threads, rows);
      parallel_tasks(threads, (s_.m + rows - 1) / rows, [&](int64_t task, int thread) {
        Scratch own(context.scratch(thread));
        multiply_rows(own, {task * rows, std::min(rows, s_.m - task * rows), group_, inner, group_ == 0});
      });
    }
  }

 private:
  static constexpr int64_t kWorthATeam = int64_t{1} << 18;  // multiplications
  static constexpr int64_t kMostRows = 128, kGroup = 2048, kLongInner = 256;

  struct Range {
    int64_t begin, end;
  };

  // As in core/matmul/gemm.cpp: a thread begins with the half of the inner axis that it made.
  void multiply_by_halves(Context& context, int threads, int64_t rows) const {
    const int64_t middle_row = s_.m / kBlock / 2 * kBlock, middle = steps(s_.k) / 2 * kStep;
    const Range of_rows[] = {{0, middle_row}, {middle_row, s_.m}}, of_inner[] = {{0, middle}, {middle, s_.k}};
    const auto tasks = [&](const Range& range) { return (range.end - range.begin + rows - 1) / rows; };
    for (const size_t pass : {size_t{0}, size_t{1}})
      parallel_tasks(threads, tasks(of_rows[0]) + tasks(of_rows[1]), [&](int64_t task, int thread) {
        Scratch own(context.scratch(thread));
        const int64_t front = tasks(of_rows[pass]);
        const size_t half = task < front ? 0 : 1;
        const Range range = of_rows[half ^ pass], inner = of_inner[half];
        const int64_t row = range.begin + (half == 0 ? task : task - front) * rows;
        multiply_rows(own, {row, std::min(rows, range.end - row), inner.begin, inner.end - inner.begin, pass == 0});
      });
  }

  void pack_b(int threads, int64_t k, int64_t inner) {
    panel_b_ = steps(inner) * kTileSize;
    parallel_for(threads, panels(s_.n) * steps(inner), 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {  // in the order that they lie in memory
        const int64_t panel = s_.transpose_b ? i / steps(inner) : i % panels(s_.n),
                      step = s_.transpose_b ? i % steps(inner) : i / panels(s_.n);
        const int64_t column = panel * kSide, at = step * kStep;
        const bf16* const from = s_.transpose_b ? b_ + column * s_.ldb + k + at : b_ + (k + at) * s_.ldb + column;
        pack_step<true>(from, s_.ldb, s_.transpose_b, std::min(kSide, s_.n - column), std::min(kStep, inner - at),
                        packed_ + panel * panel_b_ + step * kTileSize);
      }
    });
  }

  [[nodiscard]] const bf16* a_at(int64_t row, int64_t k) const {
    return s_.transpose_a ? a_ + k * s_.lda + row : a_ + row * s_.lda + k;
  }

  [[nodiscard]] Panels panels_of_a(Scratch& scratch, const Part& part) const {
    if (!s_.transpose_a && part.rows % kSide == 0 && part.inner % kStep == 0)
      return {reinterpret_cast<const char*>(a_at(part.row, part.k)), s_.lda * 2, kStep * 2, kSide * s_.lda * 2};
    const int64_t all_steps = steps(part.inner), all_panels = panels(part.rows);
    bf16* const a = scratch.get<bf16>(all_panels * all_steps * kTileSize);
    for (int64_t i = 0; i < all_panels * all_steps; ++i) {
      const int64_t panel = s_.transpose_a ? i % all_panels : i / all_steps,
                    step = s_.transpose_a ? i / all_panels : i % all_steps;
      const int64_t row = panel * kSide, at = step * kStep;
      pack_step<false>(a_at(part.row + row, part.k + at), s_.lda, !s_.transpose_a, std::min(kSide, part.rows - row),
                       std::min(kStep, part.inner - at), a + (panel * all_steps + step) * kTileSize);
    }
    return {reinterpret_cast<const char*>(a), 64, kTileSize * 2, all_steps * kTileSize * 2};
  }

  void multiply_rows(Scratch& scratch, const Part& part) const {
    const Panels a = panels_of_a(scratch, part);
    const int64_t first_step = (part.k - group_) / kStep;
    const typename Unit::Ready ready;
    for (int64_t column = 0; column < s_.n; column += kBlock) {
      const Panels b{reinterpret_cast<const char*>(packed_ + column / kSide * panel_b_ + first_step * kTileSize), 64,
                     kTileSize * 2, panel_b_ * 2};
      for (int64_t row = 0; row < part.rows; row += kBlock) {
        const Panels at{a.data + row / kSide * a.panel, a.row, a.step, a.panel};
        multiply_block(at, b, steps(part.inner), part.row + row, std::min(kBlock, part.rows - row), column,
                       std::min(kBlock, s_.n - column), part.first);
      }
    }
  }

  void multiply_block(const Panels& a, const Panels& b, int64_t count, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, bool first) const {
    Out* const c = c_ + row * s_.ldc + column;
    const bool adds = s_.accumulate || !first, biased = bias_ != nullptr && first;
    const bool tall = rows > kSide, wide = columns > kSide;
    const auto run = tall   ? wide ? Unit::template multiply<2, 2> : Unit::template multiply<2, 1>
                       : wide ? Unit::template multiply<1, 2>
                            : Unit::template multiply<1, 1>;
    const bool whole = rows % kSide == 0 && columns % kSide == 0;
    if constexpr (std::is_same_v<Out, float>)
      if (whole && !(adds && biased))
        return run(a, b, count, {adds ? c : biased ? bias_ + column : nullptr, adds ? s_.ldc * 4 : 0, c, s_.ldc * 4});
    alignas(64) float sums[kBlock * kBlock], start[kBlock];
    if (biased) {
      std::fill(start, start + kBlock, 0.0f);
      std::copy_n(bias_ + column, columns, start);
    }
    run(a, b, count, {biased ? start : nullptr, 0, sums, kBlock * 4});
    store(sums, rows, columns, adds, c, s_.ldc);
  }

  const MatmulShape& s_;
  const bf16 *a_, *b_;
  Out* c_;
  const float* bias_;
  int64_t group_ = 0;       // where the packed part of the inner axis begins
  bf16* packed_ = nullptr;  // B's panels
  int64_t panel_b_ = 0;     // between them
};

template <class Out>
void run(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, Out* c,
         const float* bias) {
  if (unit == Bf16Unit::none) return multiply_widened(context, shape, a, b, c, bias);
  for (int64_t i = 0; i < shape.batch; ++i, a += shape.stride_a, b += shape.stride_b, c += shape.stride_c)
    unit == Bf16Unit::tiles ? Bf16Gemm<TilesUnit, Out>(shape, a, b, c, bias).run(context)
                            : Bf16Gemm<Avx512Unit, Out>(shape, a, b, c, bias).run(context);
}

}  // namespace

Bf16Unit bf16_unit() {
  if (cpu_has(CpuLevel::amx)) return Bf16Unit::tiles;
  return cpu_has(CpuLevel::avx512_bf16) ? Bf16Unit::avx512 : Bf16Unit::none;
}

#else

namespace {

template <class Out>
void run(Bf16Unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, Out* c,
         const float* bias) {
  multiply_widened(context, shape, a, b, c, bias);
}

}  // namespace

Bf16Unit bf16_unit() { return Bf16Unit::none; }

#endif

void bf16_gemm(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, float* c,
               const float* bias) {
  run(unit, context, shape, a, b, c, bias);
}
void bf16_gemm(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, bf16* c,
               const float* bias) {
  run(unit, context, shape, a, b, c, bias);
}

}  // namespace tril
