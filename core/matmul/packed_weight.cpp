#include "core/matmul/packed_weight.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/machine/avx512.h"
#include "core/machine/cpu.h"

namespace tril {
namespace {

bool on_matrix_unit(DType type) { return type == DType::bf16 && cpu_has(CpuLevel::amx); }

#if defined(__x86_64__)
template <class W>
TRIL_AVX512 void multiply_many(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w,
                               const float* bias, float* y, int64_t row_y) {
  panels::product<8>(x, row_x, rows, w, bias, y, row_y);
}
#endif

template <class W>
TRIL_INLINE void multiply_few(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w,
                              const float* bias, float* y, int64_t row_y) {
  panels::product(x, row_x, rows, w, bias, y, row_y);
}

template <class W>
void multiply_by(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w, const float* bias, float* y,
                 int64_t row_y) {
#if defined(__x86_64__)
  if (rows >= 8 && cpu_has(CpuLevel::avx512)) return multiply_many(x, row_x, rows, w, bias, y, row_y);
#endif
  cloned<multiply_few<W>>(x, row_x, rows, w, bias, y, row_y);
}

}  // namespace

int64_t PackedWeight::bytes(int64_t outputs, int64_t inputs, DType type) {
  const int64_t elements =
      on_matrix_unit(type) ? bf16_rows::elements(outputs, inputs) : panels::elements(outputs, inputs);
  return elements * size_of(type);
}

PackedWeight::PackedWeight(std::span<const Rows> rows, int64_t inputs, DType type, std::byte* memory)
    : inputs_(inputs) {
  TRIL_CHECK(type == DType::f32 || type == DType::bf16, "packed weight", "f32 or bf16", name_of(type));
  for (const Rows& some : rows) outputs_ += some.count;
  std::fill_n(memory, bytes(outputs_, inputs, type), std::byte{0});
  int64_t below = 0;
  const auto pack_all = [&](auto&& pack) {
    for (const auto& [first, stride, count] : rows) {
      pack(first, stride, count, below);
      below += count;
    }
  };
  const auto into_panels = [&](auto* out) {
    pack_all([&](const float* first, int64_t stride, int64_t count, int64_t at) {
      panels::pack(first, stride, count, inputs, out, at);
    });
    return panels::packed(out, outputs_, inputs);
  };
  auto* const floats = reinterpret_cast<float*>(memory);
  auto* const halves = reinterpret_cast<bf16*>(memory);
  if (type == DType::f32) {
    wide_ = into_panels(floats);
  } else if (on_matrix_unit(type)) {
    pack_all([&](const float* first, int64_t stride, int64_t count, int64_t at) {
      bf16_rows::pack(first, stride, count, inputs, halves, at);
    });
    tiles_ = {halves, inputs, outputs_};
  } else {
    narrow_ = into_panels(halves);
  }
}

PackedProducts::PackedProducts(DType weights, int64_t rows, std::byte* scratch)
    : rows_(rows), rounded_(reinterpret_cast<bf16*>(scratch)) {
  if (on_matrix_unit(weights)) unit_.emplace(bf16_rows::rows_of_unit(rows));
}

int64_t PackedProducts::scratch_bytes(DType weights, int64_t rows, int64_t most_inputs) {
  return on_matrix_unit(weights) ? bf16_rows::rounded_elements(rows, most_inputs) * size_of(DType::bf16) : 0;
}

void PackedProducts::operator()(const float* x, int64_t row_x, const PackedWeight& w, const float* bias, float* y,
                                int64_t row_y) const {
  if (w.tiles_.data != nullptr)
    bf16_rows::product(x, row_x, rows_, w.tiles_, bias, y, row_y, rounded_);
  else if (w.narrow_.data != nullptr)
    multiply_by(x, row_x, rows_, w.narrow_, bias, y, row_y);
  else
    multiply_by(x, row_x, rows_, w.wide_, bias, y, row_y);
}

}  // namespace tril
