#include "core/matmul/bf16_rows.h"

#include "core/matmul/bf16_tiles.h"

namespace tril::bf16_rows {
namespace {

constexpr int64_t kSide = 16, kStep = 32, kTileSize = kSide * kStep;

int64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

int64_t elements(int64_t outputs, int64_t inputs) { return parts(outputs, kSide) * parts(inputs, kStep) * kTileSize; }
int64_t rounded_elements(int64_t rows, int64_t inputs) { return rooms(rows) * parts(inputs, kStep) * kStep; }

void pack(const float* weight, int64_t row_stride, int64_t outputs, int64_t inputs, bf16* matrix, int64_t first) {
  const int64_t panel = parts(inputs, kStep) * kTileSize;
  for (int64_t j = 0; j < outputs; ++j) {
    bf16* const column = matrix + (first + j) / kSide * panel + (first + j) % kSide * 2;
    for (int64_t i = 0; i < inputs; ++i)
      column[i / kStep * kTileSize + i % kStep / 2 * kStep + i % 2] = bf16{weight[j * row_stride + i]};
  }
}

#if defined(__x86_64__) && defined(__linux__)

namespace {

// Rounds a row (n) to bf16 and fills it with zeros up to `length`, a multiple of kStep.
TRIL_TILES_INLINE void round_row(const float* x, int64_t n, bf16* out, int64_t length) {
  for (int64_t i = 0; i < length; i += kSide) {
    const auto lanes = static_cast<__mmask16>(bf16_panels::first_lanes(n - i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, x + i)));
  }
}

// Multiplies one tile of rows by kPanels panels of 16 outputs each, over `count` steps of the inner axis.
template <int kPanels>
TRIL_TILES_INLINE void multiply_one_tile(const bf16* x, int64_t row_x, const bf16* w, int64_t count, const float* bias,
                                         float* y, int64_t row_y) {
#define TRIL_START(tile)                         \
  if constexpr (tile < kPanels) {                \
    if (bias == nullptr)                         \
      _tile_zero(tile);                          \
    else                                         \
      _tile_loadd(tile, bias + (tile)*kSide, 0); \
  }
#define TRIL_MULTIPLY(tile, of_w)                               \
  if constexpr (tile < kPanels) {                               \
    _tile_loadd(of_w, w + (tile)*count * kTileSize, kStep * 2); \
    _tile_dpbf16ps(tile, 4, of_w);                              \
  }
#define TRIL_STORE(tile) \
  if constexpr (tile < kPanels) _tile_stored(tile, y + (tile)*kSide, row_y * 4)
  TRIL_START(0)
  TRIL_START(1)
  TRIL_START(2)
  TRIL_START(3)
  for (int64_t i = 0; i < count; ++i, w += kTileSize) {
    _tile_loadd(4, x + i * kStep, row_x * 2);
    TRIL_MULTIPLY(0, 6)
    TRIL_MULTIPLY(1, 7)
    TRIL_MULTIPLY(2, 6)
    TRIL_MULTIPLY(3, 7)
  }
  TRIL_STORE(0);
  TRIL_STORE(1);
  TRIL_STORE(2);
  TRIL_STORE(3);
#undef TRIL_START
#undef TRIL_MULTIPLY
#undef TRIL_STORE
}

TRIL_TILES void multiply(const bf16* x, int64_t row_x, int64_t tiles, const Matrix& w, const float* bias, float* y,
                         int64_t row_y) {
  const int64_t panels = parts(w.outputs, kSide), count = parts(w.inputs, kStep);
  const auto matrix = [&](int64_t panel) { return w.data + panel * count * kTileSize; };
  const auto bias_at = [&](int64_t panel) { return bias == nullptr ? nullptr : bias + panel * kSide; };
  asm volatile("" ::: "memory");  // GCC's tile loads do not say that they read memory
  for (int64_t panel = 0; tiles > 1 && panel < panels; panel += 2)
    for (int64_t tile = 0; tile + 2 <= tiles; tile += 2)
      bf16_tiles::multiply_for(true, panels - panel >= 2)(
          {reinterpret_cast<const char*>(x + tile * kSide * row_x), row_x * 2, kStep * 2, kSide * row_x * 2},
          {reinterpret_cast<const char*>(matrix(panel)), 64, kTileSize * 2, count * kTileSize * 2}, count,
          {bias_at(panel), 0, y + tile * kSide * row_y + panel * kSide, row_y * 4});
  if (tiles % 2 != 0) {
    const bf16* const at = x + (tiles - 1) * kSide * row_x;
    float* const out = y + (tiles - 1) * kSide * row_y;
    int64_t panel = 0;
    for (; panel + 4 <= panels; panel += 4)
      multiply_one_tile<4>(at, row_x, matrix(panel), count, bias_at(panel), out + panel * kSide, row_y);
    for (; panel < panels; ++panel)
      multiply_one_tile<1>(at, row_x, matrix(panel), count, bias_at(panel), out + panel * kSide, row_y);
  }
  asm volatile("" ::: "memory");
}

}  // namespace

TRIL_TILES void product(const float* x, int64_t row_x, int64_t rows, const Matrix& w, const float* bias, float* y,
                        int64_t row_y, bf16* rounded) {
  const int64_t length = parts(w.inputs, kStep) * kStep;
  for (int64_t row = 0; row < rows; ++row) round_row(x + row * row_x, w.inputs, rounded + row * length, length);
  multiply(rounded, length, parts(rows, kSide), w, bias, y, row_y);
}

#else

void product(const float*, int64_t, int64_t, const Matrix&, const float*, float*, int64_t, bf16*) {}

#endif

}  // namespace tril::bf16_rows
