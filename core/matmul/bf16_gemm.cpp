#include "core/matmul/bf16_gemm.h"

#include <algorithm>

#include "core/kernels/convert.h"
#include "core/machine/cpu.h"
#include "core/machine/parallel.h"
#include "core/matmul/bf16_tiles.h"

namespace tril {
namespace {

// How many elements a matrix spans in memory, gaps between its rows included.
int64_t extent(int64_t rows, int64_t columns, int64_t row_length) { return (rows - 1) * row_length + columns; }

float* widened(Context& context, Scratch& scratch, const bf16* x, int64_t count) {
  float* const wide = scratch.get<float>(count);
  parallel_for(context.threads(), count, int64_t{1} << 16,
               [&](int64_t begin, int64_t end, int) { convert(x + begin, wide + begin, end - begin); });
  return wide;
}

// For a processor that cannot multiply bf16: widens A and B to f32, one matrix of the batch after the other.
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
using tile_block::TileSums;

// What both units share.
struct Bf16Products {
  using Operand = bf16;
  using Packed = bf16;
  static constexpr int64_t kStepSize = kTileSize, kTasks = 4, kPackedAtOnce = 64;
  static constexpr int64_t kInner = int64_t{1} << 62, kMostRows = 128;  // kInner: all that is packed of B
  static constexpr bool kInPlace = true, kMisfits = false, kHalves = true;

  static bool worth_a_team(const MatmulShape& s) {
    constexpr int64_t kWorthATeam = int64_t{1} << 18;  // multiplications
    return s.m * s.n >= kWorthATeam / s.k;
  }

  // A C in f32 is summed over groups of the inner axis whose panels stay in cache. A C in bf16 takes the whole inner
  // axis at once, so that its sums are rounded only once.
  template <class Out>
  static int64_t group(const MatmulShape& s, int) {
    constexpr int64_t kGroup = 2048;
    return std::is_same_v<Out, float> ? kGroup : s.k;
  }

  template <bool kOfB>
  static bool pack_step(const bf16* x, int64_t row_length, bool along, int64_t side, int64_t inner, bf16* out) {
    bf16_panels::pack_step<kOfB>(x, row_length, along, side, inner, out);
    return true;
  }

  // Writes `sums`, whose rows are kBlock apart, to rows x columns of C, or adds them.
  TRIL_BF16 static void store(const float* sums, int64_t rows, int64_t columns, bool add, bf16* c, int64_t ldc) {
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
};

struct TilesUnit : Bf16Products {
  using Ready = MatrixUnit;

  template <int kRows, int kColumns>
  static void multiply(const Panels& a, const Panels& b, int64_t count, const TileSums& c, const NextBlock&) {
    bf16_tiles::multiply<kRows, kColumns>(a, b, count, c);
  }
};

struct Avx512Unit : Bf16Products {
  struct Ready {
    Ready() {}  // nothing to make ready
  };

  template <int kRows, int kColumns>
  TRIL_BF16 static void multiply(const Panels& a, const Panels& b, int64_t count, const TileSums& c, const NextBlock&) {
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

template <class Out>
void run(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, Out* c,
         const float* bias) {
  if (unit == Bf16Unit::none) return multiply_widened(context, shape, a, b, c, bias);
  for (int64_t i = 0; i < shape.batch; ++i, a += shape.stride_a, b += shape.stride_b, c += shape.stride_c)
    unit == Bf16Unit::tiles ? PanelGemm<TilesUnit, Out>(shape, a, b, c, bias).run(context)
                            : PanelGemm<Avx512Unit, Out>(shape, a, b, c, bias).run(context);
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
