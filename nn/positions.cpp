#include "nn/positions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tril {
namespace {

void expect_within(const Tensor& x, int64_t context, int64_t width) {
  TRIL_CHECK(x.tape != nullptr, "positions", "x on a tape", "a parameter or a constant without one",
             "bring it in with Tape::constant or Tape::variable");
  TRIL_CHECK(x.shape.rank() == 3 && x.shape[2] == width, "positions", cat("x (B, T, ", width, ")"),
             cat("shape ", x.shape));
  TRIL_CHECK(x.shape[1] <= context, "positions", cat("at most ", context, " positions"), cat(x.shape[1]),
             "use a shorter sequence or a longer context");
}

}  // namespace

LearnedPositions::LearnedPositions(const Scope& scope, int64_t context, int64_t width)
    : weight(scope.param("weight", {context, width}, Init::normal(kInitDeviation))) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // positions are i32 ids of rows in the table
  TRIL_CHECK(context <= kMost, cat("parameter ", weight.info().name), cat("at most ", kMost, " positions"),
             cat(context));
}

Tensor LearnedPositions::operator()(const Tensor& x) const {
  const Tensor table = weight;
  expect_within(x, table.shape[0], table.shape[1]);
  // A whole context needs no cut.
  if (x.shape[1] == table.shape[0]) return add(x, table);
  std::vector<int32_t> first(static_cast<size_t>(x.shape[1]));
  for (size_t t = 0; t < first.size(); ++t) first[t] = static_cast<int32_t>(t);
  return add(x, embedding(x.tape->constant<int32_t>({x.shape[1]}, first), weight));
}

std::unique_ptr<InputStep> LearnedPositions::decode_step(DecodeMemory& memory) const {
  return table_step(memory.copy(weight), weight.info().value.shape.last(), TableRow::of_place);
}

SinusoidalPositions::SinusoidalPositions(int64_t context, int64_t width) : context_(context), width_(width) {
  TRIL_CHECK(context > 0 && width > 0, "positions", "a context and a width of at least 1",
             cat(context, " and ", width));
  for (int64_t t = 0; t < context; ++t)
    for (int64_t c = 0; c < width; ++c) {
      const double angle =
          static_cast<double>(t) / std::pow(10000.0, static_cast<double>(c / 2 * 2) / static_cast<double>(width));
      table_.push_back(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  table_f32_.assign(table_.begin(), table_.end());
}

double SinusoidalPositions::at(int64_t position, int64_t column) const {
  return table_[static_cast<size_t>(position * width_ + column)];
}

Tensor SinusoidalPositions::operator()(const Tensor& x) const {
  expect_within(x, context_, width_);
  const void* const table =
      x.dtype == DType::f64 ? static_cast<const void*>(table_.data()) : static_cast<const void*>(table_f32_.data());
  return add(x, x.tape->view({x.shape[1], width_}, x.dtype, table));
}

std::unique_ptr<InputStep> SinusoidalPositions::decode_step(DecodeMemory& memory) const {
  auto* const table = memory.room<float>(context_ * width_);
  std::copy(table_f32_.begin(), table_f32_.end(), table);
  return table_step(table, width_, TableRow::of_place);
}

}  // namespace tril
