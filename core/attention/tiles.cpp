#include "core/attention/tiles.h"

#include <algorithm>

#include "core/kernels/convert.h"
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

// n: a multiple of 32
TRIL_TILES void narrow(const float* x, float factor, bf16* out, int64_t n) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < n; i += 2 * kSide)
    _mm512_storeu_si512(out + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(factors, _mm512_loadu_ps(x + i + kSide)),
                                                              _mm512_mul_ps(factors, _mm512_loadu_ps(x + i))));
}

// HeadRows of n numbers, a multiple of 32.
TRIL_TILES void round_rows(const float* rows, int64_t stride, int64_t count, bf16* to, int64_t row, int64_t n) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < n; j += 2 * kSide) {
      const float* const from = rows + i * stride + j;
      _mm512_storeu_si512(to + i * row + j,
                          (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + kSide), _mm512_loadu_ps(from)));
    }
}

}  // namespace

AttentionTiles::AttentionTiles(Scratch& scratch, int64_t head, int64_t keys, bool backward)
    : head_(head),
      keys_(keys),
      key_rows_(round_up(keys, kStep)),
      head_columns_(round_up(head, kSide)),
      head_inner_(round_up(head, kStep)),
      keys_along_(scratch.get<bf16>(key_rows_ * head_inner_)),
      mixed_across_(scratch.get<bf16>(key_rows_ * head_columns_)),
      copy_(scratch.get<bf16>(kBlock * head_inner_)),
      weights_(scratch.get<bf16>(kBlock * key_rows_)),
      mixed_(scratch.get<float>(kBlock * head_columns_)) {
  if (!backward) return;
  values_along_ = scratch.get<bf16>(key_rows_ * head_inner_);
  weights_transposed_ = scratch.get<bf16>(kBlock * key_rows_);
  rows_across_ = scratch.get<bf16>(kStep * head_columns_);
  dkeys_ = scratch.get<float>(key_rows_ * head_columns_);
  dvalues_ = scratch.get<float>(key_rows_ * head_columns_);
}

void AttentionTiles::take_keys(const bf16* k, const bf16* v, int64_t row, int64_t seen, bool) {
  const bool backward = values_along_ != nullptr;
  const Extent along{key_rows_, head_, seen, head_}, across{head_, keys_, head_, seen};
  pack_second(k, row, true, along, keys_along_);
  if (backward) pack_second(v, row, true, along, values_along_);
  pack_second(backward ? k : v, row, false, across, mixed_across_);
}

// HeadRows as the first operand: where they are if they fill whole tiles.
AttentionTiles::HeadRows AttentionTiles::whole_rows(const HeadRows& x, int64_t count) {
  if (count == kBlock && head_ == head_inner_) return x;
  std::fill(copy_, copy_ + kBlock * head_inner_, bf16());
  for (int64_t i = 0; i < count; ++i) std::copy_n(x.data + i * x.stride, head_, copy_ + i * head_inner_);
  return {copy_, head_inner_};
}

void AttentionTiles::multiply_by(const bf16* panels, const QueryRows& queries, const HeadRows& x, float* sums) {
  const HeadRows rows = whole_rows(x, queries.count);
  multiply({reinterpret_cast<const char*>(rows.data), rows.stride * 2, kStep * 2, kSide * rows.stride * 2},
           panels + queries.begin * head_inner_, steps(head_), kBlock, queries.padded, false, sums, queries.stride);
}

void AttentionTiles::by_keys(const QueryRows& queries, const bf16* q, int64_t row, float* scores) {
  q_ = {q, row};
  multiply_by(keys_along_, queries, q_, scores);
}

void AttentionTiles::by_values(const QueryRows& queries, const bf16* d_o, int64_t row, float* dweights) {
  d_o_ = {d_o, row};
  multiply_by(values_along_, queries, d_o_, dweights);
}

void AttentionTiles::take_weights(const QueryRows& queries, const float* weights, float factor) {
  const int64_t columns = queries.padded;
  for (int64_t i = 0; i < queries.count; ++i)
    narrow(weights + i * queries.stride, factor, weights_ + i * columns, columns);
  std::fill(weights_ + queries.count * columns, weights_ + kBlock * columns, bf16());
}

void AttentionTiles::mix(const QueryRows& queries, bf16* out, int64_t row, bool add) {
  const int64_t panel = steps(keys_) * kTileSize, columns = queries.padded;
  // Of the panels only the steps of the keys that some query sees.
  const bf16* const across = mixed_across_ + queries.begin / kStep * kTileSize;
  const Panels a{reinterpret_cast<const char*>(weights_), columns * 2, kStep * 2, kSide * columns * 2};
  for (int64_t column = 0; column < head_columns_; column += kBlock) {
    const auto run = bf16_tiles::multiply_for(true, head_columns_ - column > kSide);
    run(a, {reinterpret_cast<const char*>(across + column / kSide * panel), 64, kTileSize * 2, panel * 2},
        columns / kStep, {nullptr, 0, mixed_ + column, head_columns_ * 4});
  }
  write(mixed_, queries.count, out, row, add);
}

void AttentionTiles::spread(const QueryRows& queries, const WrittenPanels& written, const HeadRows& x, float* sums) {
  for (int64_t key = 0; key < queries.padded; key += kSide)
    pack_step<false>(weights_ + key, queries.padded, false, kSide, kStep, weights_transposed_ + key * kStep);
  pack_second(x.data, x.stride, false, {head_, queries.count, head_, queries.count}, rows_across_);
  written.each_run(queries.begin, queries.padded, [&](int64_t begin, int64_t end, bool add) {
    const bf16* const weights = weights_transposed_ + (begin - queries.begin) * kStep;
    multiply({reinterpret_cast<const char*>(weights), 64, 0, kTileSize * 2}, rows_across_, 1,
             round_up(end - begin, kStep), head_columns_, add, sums + begin * head_columns_, head_columns_);
  });
}

void AttentionTiles::write(const float* rows, int64_t count, bf16* to, int64_t row, bool add) const {
  if (!add && head_ % (2 * kSide) == 0) return round_rows(rows, head_columns_, count, to, row, head_);
  for (int64_t i = 0; i < count; ++i)
    (add ? convert_and_add<float, bf16> : convert<float, bf16>)(rows + i * head_columns_, to + i * row, head_);
}

void AttentionTiles::finish(const WrittenPanels& written, const KeyGradient<bf16>& gradient, const float* from) const {
  if (gradient.data == nullptr) return;
  written.each_run([&](int64_t begin, int64_t end, bool there) {
    bf16* const to = gradient.data + begin * gradient.row;
    if (there) write(from + begin * head_columns_, end - begin, to, gradient.row, gradient.add);
    if (there || gradient.add) return;
    for (int64_t i = 0; i < end - begin; ++i) std::fill_n(to + i * gradient.row, head_, bf16());
  });
}

#else

AttentionTiles::AttentionTiles(Scratch&, int64_t head, int64_t keys, bool)
    : head_(head), keys_(keys), key_rows_(0), head_columns_(0), head_inner_(0) {}
void AttentionTiles::take_keys(const bf16*, const bf16*, int64_t, int64_t, bool) {}
void AttentionTiles::by_keys(const QueryRows&, const bf16*, int64_t, float*) {}
void AttentionTiles::by_values(const QueryRows&, const bf16*, int64_t, float*) {}
void AttentionTiles::take_weights(const QueryRows&, const float*, float) {}
void AttentionTiles::mix(const QueryRows&, bf16*, int64_t, bool) {}
void AttentionTiles::spread(const QueryRows&, const WrittenPanels&, const HeadRows&, float*) {}
void AttentionTiles::finish(const WrittenPanels&, const KeyGradient<bf16>&, const float*) const {}

#endif

}  // namespace tril
