#include "nn/decode_steps.h"

#include <algorithm>

#include "core/machine/clones.h"

namespace tril {
namespace {

const float* values_of(const Param& param) {
  const Tensor values = param;
  TRIL_CHECK(values.dtype == DType::f32, "decoder", "parameters of f32", name_of(values.dtype));
  return values.ptr<float>();
}

TRIL_INLINE void add(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

class TableStep final : public InputStep {
 public:
  TableStep(const float* table, int64_t width, TableRow which) : table_(table), width_(width), which_(which) {}
  void operator()(const DecodeRow& row, float* x) const override {
    add_row(table_ + (which_ == TableRow::of_token ? row.token : row.at) * width_, x, width_);
  }

 private:
  const float* table_;
  int64_t width_;
  TableRow which_;
};

}  // namespace

void add_row(const float* x, float* y, int64_t n) { cloned<add>(x, y, n); }

std::unique_ptr<InputStep> table_step(const float* table, int64_t width, TableRow which) {
  return std::make_unique<TableStep>(table, width, which);
}

Range DecodeOptions::share_of(int64_t count, int64_t share, int64_t unit) const {
  const auto cut = [&](int64_t i) { return std::min(panels::round_up(count * i / shares, unit), count); };
  return {cut(share), cut(share + 1)};
}

const float* DecodeMemory::copy(const Param& param, std::initializer_list<Range> parts) {
  if (!param) return nullptr;
  const float* const values = values_of(param);
  int64_t count = 0;
  for (const Range& part : parts) count += part.count();
  auto* const out = room<float>(PackedWeight::padded(count));
  float* to = out;
  for (const Range& part : parts) to = std::copy(values + part.begin, values + part.end, to);
  std::fill(to, out + PackedWeight::padded(count), 0.0f);
  return out;
}

const float* DecodeMemory::copy(const Param& param) {
  return param ? copy(param, {{0, param.info().value.count()}}) : nullptr;
}

PackedWeight DecodeMemory::pack(std::span<const PackedWeight::Rows> rows, int64_t inputs) {
  int64_t outputs = 0;
  for (const PackedWeight::Rows& some : rows) outputs += some.count;
  return {rows, inputs, options_.weights, room<std::byte>(PackedWeight::bytes(outputs, inputs, options_.weights))};
}

PackedWeight DecodeMemory::pack_rows(const Param& weight, std::initializer_list<Range> rows) {
  const float* const values = values_of(weight);
  const int64_t inputs = weight.info().value.shape.last();
  std::vector<PackedWeight::Rows> some;
  for (const Range& range : rows) some.push_back({values + range.begin * inputs, inputs, range.count()});
  return pack(some, inputs);
}

PackedWeight DecodeMemory::pack_columns(const Param& weight, Range columns) {
  const Shape& shape = weight.info().value.shape;
  const PackedWeight::Rows all{values_of(weight) + columns.begin, shape.last(), shape[0]};
  return pack({&all, 1}, columns.count());
}

}  // namespace tril
