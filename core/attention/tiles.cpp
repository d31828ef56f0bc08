#include "core/attention/tiles.h"

#include <algorithm>

#include "core/machine/clones.h"
#include "core/matmul/bf16_tiles.h"

namespace tril {

#if defined(__x86_64__) && defined(__linux__)

namespace {

using namespace bf16_panels;
using bf16_tiles::kBlock;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// How many columns and inner numbers of a second operand there are, and, from the first on, how many are read.
struct Extent {
  int64_t sides, inner, read_sides, read_inner;
};

// x, its rows `row` apart, as panels of the second operand: of its columns, with its rows as the inner axis, or (along)
// the other way around. What is not read is 0.
void pack_second(const bf16* x, int64_t row, bool along, const Extent& extent, bf16* out) {
  for (int64_t panel = 0; panel < panels(extent.sides); ++panel)
    for (int64_t step = 0; step < steps(extent.inner); ++step, out += kTileSize) {
      const int64_t side = panel * kSide, at = step * kStep;
      const int64_t sides = std::min(kSide, extent.read_sides - side), inner = std::min(kStep, extent.read_inner - at);
      if (sides <= 0 || inner <= 0)
        std::fill(out, out + kTileSize, bf16());
      else
        pack_step<true>(along ? x + side * row + at : x + at * row + side, row, along, sides, inner, out);
    }
}

// rows and columns are multiples of 16.
void multiply(const Panels& a, const bf16* b, int64_t count, int64_t rows, int64_t columns, bool add, float* sums,
              int64_t stride) {
  const int64_t panel = count * kTileSize;
  for (int64_t column = 0; column < columns; column += kBlock)
    for (int64_t row = 0; row < rows; row += kBlock) {
      float* const to = sums + row * stride + column;
      const auto run = bf16_tiles::multiply_for(rows - row > kSide, columns - column > kSide);
      run({a.data + row / kSide * a.panel, a.row, a.step, a.panel},
          {reinterpret_cast<const char*>(b + column / kSide * panel), 64, kTileSize * 2, panel * 2}, count,
          {add ? to : nullptr, stride * 4, to, stride * 4});
    }
}

TRIL_INLINE void scale_rows(float* x, int64_t stride, int64_t rows, int64_t columns, float factor) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) x[i * stride + j] *= factor;
}

// n: a multiple of 32
TRIL_TILES void narrow(const float* x, float factor, bf16* out, int64_t n) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < n; i += 2 * kSide)
    _mm512_storeu_si512(out + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(factors, _mm512_loadu_ps(x + i + kSide)),
                                                              _mm512_mul_ps(factors, _mm512_loadu_ps(x + i))));
}

}  // namespace

AttentionTiles::AttentionTiles(Scratch& scratch, int64_t head, int64_t keys, bool backward)
    : head_(head),
      keys_(keys),
      key_rows_(round_up(keys, kStep)),
      head_columns_(round_up(head, kSide)),
      head_inner_(round_up(head, kStep)),
      keys_along_(scratch.get<bf16>(key_rows_ * head_inner_)),
      values_across_(scratch.get<bf16>(key_rows_ * head_columns_)),
      copy_(scratch.get<bf16>(kBlock * head_inner_)),
      weights_(scratch.get<bf16>(kBlock * key_rows_)) {
  if (!backward) return;
  values_along_ = scratch.get<bf16>(key_rows_ * head_inner_);
  keys_across_ = scratch.get<bf16>(key_rows_ * head_columns_);
  weights_transposed_ = scratch.get<bf16>(kBlock * key_rows_);
  rows_across_ = scratch.get<bf16>(kStep * head_columns_);
}

void AttentionTiles::take_keys(const bf16* k, const bf16* v, int64_t row, int64_t seen) {
  const Extent along{key_rows_, head_, seen, head_}, across{head_, keys_, head_, seen};
  pack_second(k, row, true, along, keys_along_);
  pack_second(v, row, false, across, values_across_);
  if (values_along_ == nullptr) return;
  pack_second(v, row, true, along, values_along_);
  pack_second(k, row, false, across, keys_across_);
}

// Rows of a block as the first operand: where they are if they fill whole tiles.
const bf16* AttentionTiles::rows_of(const bf16* x, int64_t& row, int64_t count) {
  if (count == kBlock && head_ == head_inner_) return x;
  std::fill(copy_, copy_ + kBlock * head_inner_, bf16());
  for (int64_t i = 0; i < count; ++i) std::copy_n(x + i * row, head_, copy_ + i * head_inner_);
  row = head_inner_;
  return copy_;
}

void AttentionTiles::multiply_by(const bf16* panels, const bf16* x, int64_t row, int64_t count, int64_t columns,
                                 float* sums, int64_t stride) {
  const bf16* const rows = rows_of(x, row, count);
  multiply({reinterpret_cast<const char*>(rows), row * 2, kStep * 2, kSide * row * 2}, panels, steps(head_), kBlock,
           columns, false, sums, stride);
}

void AttentionTiles::by_keys(const bf16* x, int64_t row, int64_t count, int64_t columns, float factor, float* sums,
                             int64_t stride) {
  multiply_by(keys_along_, x, row, count, columns, sums, stride);
  cloned<scale_rows>(sums, stride, count, columns, factor);
}

void AttentionTiles::by_values(const bf16* x, int64_t row, int64_t count, int64_t columns, float* sums,
                               int64_t stride) {
  multiply_by(values_along_, x, row, count, columns, sums, stride);
}

void AttentionTiles::take_weights(const float* weights, int64_t stride, int64_t count, int64_t columns, float factor) {
  count_ = count;
  columns_ = columns;
  for (int64_t i = 0; i < count; ++i) narrow(weights + i * stride, factor, weights_ + i * columns, columns);
  std::fill(weights_ + count * columns, weights_ + kBlock * columns, bf16());
}

void AttentionTiles::mix(const bf16* across, float* sums) {
  const int64_t panel = steps(keys_) * kTileSize;
  // Of the panels only the first columns' steps: those of the keys that the block sees.
  const Panels a{reinterpret_cast<const char*>(weights_), columns_ * 2, kStep * 2, kSide * columns_ * 2};
  for (int64_t column = 0; column < head_columns_; column += kBlock) {
    const auto run = bf16_tiles::multiply_for(true, head_columns_ - column > kSide);
    run(a, {reinterpret_cast<const char*>(across + column / kSide * panel), 64, kTileSize * 2, panel * 2},
        columns_ / kStep, {nullptr, 0, sums + column, head_columns_ * 4});
  }
}

void AttentionTiles::spread(const bf16* x, int64_t row, bool add, float* sums) {
  for (int64_t key = 0; key < columns_; key += kSide)
    pack_step<false>(weights_ + key, columns_, false, kSide, kStep, weights_transposed_ + key * kStep);
  pack_second(x, row, false, {head_, count_, head_, count_}, rows_across_);
  multiply({reinterpret_cast<const char*>(weights_transposed_), 64, 0, kTileSize * 2}, rows_across_, 1, columns_,
           head_columns_, add, sums, head_columns_);
}

#else

AttentionTiles::AttentionTiles(Scratch&, int64_t head, int64_t keys, bool)
    : head_(head), keys_(keys), key_rows_(0), head_columns_(0), head_inner_(0) {}
void AttentionTiles::take_keys(const bf16*, const bf16*, int64_t, int64_t) {}
void AttentionTiles::by_keys(const bf16*, int64_t, int64_t, int64_t, float, float*, int64_t) {}
void AttentionTiles::by_values(const bf16*, int64_t, int64_t, int64_t, float*, int64_t) {}
void AttentionTiles::take_weights(const float*, int64_t, int64_t, int64_t, float) {}
void AttentionTiles::mix(const bf16*, float*) {}
void AttentionTiles::spread(const bf16*, int64_t, bool, float*) {}

#endif

}  // namespace tril
