#include "core/autograd/op.h"

#include "core/machine/arena.h"

#include <algorithm>

#include "core/autograd/tape.h"

namespace tril {

void Infer::add_result(const char* what, Results& results, int& count, const Shape& shape, DType dtype) const {
  TRIL_CHECK(count < OpPlan::kMaxResults, op_, cat("at most ", OpPlan::kMaxResults, " ", what), "more");
  results[static_cast<size_t>(count++)] = {shape, dtype};
}

uint64_t Infer::bit(int i) const {
  TRIL_CHECK(i >= 0 && i < 64, op_, "operands and outputs counted from 0 to 63", cat(i));
  return uint64_t{1} << i;
}

void Infer::expect_floating(int i, const char* operand) const {
  const DType dtype = in(i).dtype;
  TRIL_CHECK(dtype == DType::f32 || dtype == DType::f64, op_, cat(operand, " of f32 or f64"), name_of(dtype));
}

void Infer::expect_floating_or_bf16(int i, const char* operand) const {
  TRIL_CHECK(is_floating(in(i).dtype), op_, cat(operand, " of f32, f64 or bf16"), name_of(in(i).dtype));
}

void Infer::expect_same_dtype(int i, const char* operand) const {
  TRIL_CHECK(in(i).dtype == in(0).dtype, op_, cat(operand, " of ", in(0).dtype, " as the first operand"),
             name_of(in(i).dtype));
}

void Infer::expect_rank_at_least(int i, const char* operand, int rank) const {
  TRIL_CHECK(shape(i).rank() >= rank, op_, cat(operand, " with at least ", rank, rank == 1 ? " axis" : " axes"),
             cat("shape ", shape(i)));
}

std::span<const int32_t> Infer::numbers(int i) const {
  if (is_planned(in(i).data)) return {};
  return {in(i).ptr<int32_t>(), static_cast<size_t>(in(i).count())};
}

int Infer::checked_axis(int i, int64_t axis) const {
  const int rank = shape(i).rank();
  TRIL_CHECK(axis >= -rank && axis < rank, op_, cat("an axis of shape ", shape(i), ", from ", -rank, " to ", rank - 1),
             cat(axis));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

uint32_t Forward::first_sample() const {
  constexpr int64_t kMost = int64_t{1} << 32;
  const Shape& x = in(0).shape;
  const int64_t samples = x.rank() == 0 ? 1 : x[0];
  TRIL_CHECK(samples <= kMost - draws_.first_sample, op_,
             cat("samples up to ", kMost - 1, " of the step's whole batch"),
             cat(samples, " from ", draws_.first_sample, " on"), "random numbers are told apart by 32 bits");
  return draws_.first_sample;
}

const Tensor& Backward::in(int i) const {
  TRIL_CHECK(OpPlan::has_bit(plan_.reads_input, i), op_, cat("infer to declare backward_reads_input(", i, ")"),
             "no such declaration");
  return inputs_[static_cast<size_t>(i)];
}

const Tensor& Backward::out(int i) const {
  TRIL_CHECK(OpPlan::has_bit(plan_.reads_output, i), op_, cat("infer to declare backward_reads_output(", i, ")"),
             "no such declaration");
  return outputs_[static_cast<size_t>(i)];
}

namespace {

// The operand whose tape an op runs on: the first with a slot on a tape, else the first gradient (it has a tape, but no
// slot). Null if no operand has a tape.
const Tensor* with_tape(std::span<const Tensor> operands) {
  const auto first = [&](auto&& has) { return std::find_if(operands.begin(), operands.end(), has); };
  auto found = first([](const Tensor& operand) { return operand.is_on_tape(); });
  if (found == operands.end()) found = first([](const Tensor& operand) { return operand.tape != nullptr; });
  return found == operands.end() ? nullptr : &*found;
}

}  // namespace

// True for an operand whose tape was reset or destroyed: the op then throws, in its own name.
bool is_training(std::span<const Tensor> operands) {
  const Tensor* const operand = with_tape(operands);
  return operand == nullptr || !operand->tape.is_current() || operand->tape->training();
}

std::array<Tensor, OpPlan::kMaxResults> apply_all(const OpInfo& op, std::span<const Tensor> inputs, const void* attrs) {
  if (const Tensor* const operand = with_tape(inputs)) {
    operand->expect_current(op.name);
    return operand->tape->record(op, inputs, attrs);
  }
  fail(op.name, "at least one operand on a tape", "only parameters and constants",
       "bring one in with Tape::constant or Tape::variable");
}

Tensor apply(const OpInfo& op, std::span<const Tensor> inputs, const void* attrs) {
  return apply_all(op, inputs, attrs)[0];
}

}  // namespace tril
