// Discarding tensors: their memory is given back during the pass, and backward recomputes those that it reads.
#include <algorithm>

#include "core/autograd/profile.h"
#include "core/autograd/tape.h"

namespace tril {

void Tape::give_back(Slot& slot) {
  poison(slot.value.data, slot.value.bytes());
  context_.memory().free(slot.value.data, slot.value.bytes());
  slot.value.data = nullptr;
}

void Tape::discard(const Tensor& x) {
  (void)checked_slot("discard", x);
  Slot& slot = slots_[static_cast<size_t>(x.slot)];
  if (!slot.owns_memory || slot.discarded || (slot.record < 0 && training())) return;
  slot.discarded = true;
  give_back(slot);
}

bool Tape::is_discarded(const Tensor& x) const { return checked_slot("is_discarded", x).discarded; }

void Tape::discard_since(int64_t mark, std::initializer_list<Tensor> keep) {
  for (const Tensor& kept : keep) kept.expect_current("discard_since");
  for (auto i = static_cast<size_t>(mark); i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const auto is_kept = [&](const Tensor& kept) { return kept.tape == this && kept.slot == slot.value.slot; };
    if (std::none_of(keep.begin(), keep.end(), is_kept)) discard(slot.value);
  }
}

// Runs the op again that made a discarded tensor, and first the ops that made its own discarded operands. Running them
// in the order of their records is always possible.
void Tape::remake(int32_t index) {
  const auto is_missing = [&](int32_t slot) { return slots_[static_cast<size_t>(slot)].value.data == nullptr; };
  const auto needs = [&](int32_t slot) {
    const Slot& of = slots_[static_cast<size_t>(slot)];
    if (of.discarded && is_missing(slot) && std::find(to_run_.begin(), to_run_.end(), of.record) == to_run_.end())
      to_run_.push_back(of.record);
  };
  to_run_.clear();
  needs(index);
  for (size_t i = 0; i < to_run_.size(); ++i) {
    const Record& record = records_[static_cast<size_t>(to_run_[i])];
    for (int32_t j = 0; j < record.operands; ++j) needs(operand(record, j));
  }
  std::sort(to_run_.begin(), to_run_.end());
  for (const int32_t i : to_run_) run_forward(records_[static_cast<size_t>(i)]);
}

// Makes sure that what a record's backward reads is in memory.
void Tape::remake_for(const Record& record) {
  for (int32_t i = 0; i < record.operands; ++i)
    if (OpPlan::has_bit(record.plan.reads_input, i)) remake(operand(record, i));
  for (int32_t i = 0; i < record.plan.output_count; ++i)
    if (OpPlan::has_bit(record.plan.reads_output, i)) remake(record.first_output + i);
}

// Gives remade outputs of a record back: the rest of backward does not read them.
void Tape::discard_remade(const Record& record) {
  for (int32_t i = 0; i < record.plan.output_count; ++i) {
    Slot& slot = slots_[static_cast<size_t>(record.first_output + i)];
    if (!slot.remade) continue;
    slot.remade = false;
    give_back(slot);
  }
}

void Tape::run_forward(const Record& record) {
  inputs_.clear();
  for (int32_t i = 0; i < record.operands; ++i)
    inputs_.push_back(slots_[static_cast<size_t>(operand(record, i))].value);
  std::array<Tensor, OpPlan::kMaxResults> outputs;
  for (int32_t i = 0; i < record.plan.output_count; ++i) {
    Slot& slot = slots_[static_cast<size_t>(record.first_output + i)];
    if (slot.discarded && slot.value.data == nullptr) {
      slot.value.data = allocate(slot.value.shape, slot.value.dtype).data;
      slot.remade = true;
    }
    outputs[static_cast<size_t>(i)] = slot.value;
  }
  const Forward forward(
      record.op->name, context_, inputs_, {outputs.data(), static_cast<size_t>(record.plan.output_count)},
      {saved_.data() + record.first_saved, static_cast<size_t>(record.plan.saved_count)}, record.draws);
  const Timed timed(context_.profile == nullptr ? nullptr : &context_.profile->row(record.op->name, inputs_).forward);
  if (!context_.plans()) record.op->forward(forward, record.attrs.data());
}

}  // namespace tril
