// What a tape reports of a pass: its records, its first result that is not finite, and entries in the profile.
#include <algorithm>
#include <cmath>

#include "core/autograd/profile.h"
#include "core/autograd/tape.h"

namespace tril {
namespace {

bool is_finite(const Tensor& tensor) {
  if (!is_floating(tensor.dtype)) return true;
  bool finite = true;
  dispatch_with_bf16("tape", tensor.dtype, [&](auto type) {
    using T = decltype(type);
    const T* const values = tensor.ptr<T>();
    finite = std::all_of(values, values + tensor.count(),
                         [](T value) { return std::isfinite(static_cast<Compute<T>>(value)); });
  });
  return finite;
}

}  // namespace

std::string Tape::to_string() const {
  std::string text;
  for (const Record& record : records_) {
    text += record.op->name;
    for (int32_t i = 0; i < record.plan.output_count; ++i)
      text +=
          cat(i == 0 ? " -> %" : ", %", record.first_output + i, " ", record.plan.outputs[static_cast<size_t>(i)].dtype,
              " ", record.plan.outputs[static_cast<size_t>(i)].shape);
    text += " from";
    for (int32_t i = 0; i < record.operands; ++i)
      text += cat(" %", operands_[static_cast<size_t>(record.first_operand + i)]);
    text += '\n';
  }
  return text;
}

std::string Tape::first_non_finite() {
  if (context_.plans()) return {};
  for (const Record& record : records_)
    for (int32_t i = 0; i < record.plan.output_count; ++i) {
      remake(record.first_output + i);
      const Tensor& value = slots_[static_cast<size_t>(record.first_output + i)].value;
      if (!is_finite(value)) return cat(record.op->name, " -> ", value.dtype, " ", value.shape);
    }
  return {};
}

double& Tape::profile_forward(const Record& record, const Forward& forward) {
  OpTime& row = context_.profile->row(record.op->name, inputs_);
  ++row.calls;
  row.flops += record.plan.flops;
  for (const Tensor& input : inputs_) row.bytes += static_cast<double>(input.bytes());
  for (int i = 0; i < record.plan.output_count; ++i) row.bytes += static_cast<double>(forward.out(i).bytes());
  for (int i = 0; i < record.plan.saved_count; ++i) row.bytes += static_cast<double>(forward.saved(i).bytes());
  return row.forward;
}

double& Tape::profile_backward(const Record& record) {
  OpTime& row = context_.profile->row(record.op->name, inputs_);
  row.flops += 2 * record.plan.flops;
  const auto add = [&](const Tensor& tensor, bool touched) {
    if (touched) row.bytes += static_cast<double>(tensor.bytes());
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    add(inputs_[i], OpPlan::has_bit(record.plan.reads_input, static_cast<int64_t>(i)));
    add(din_[i].tensor, static_cast<bool>(din_[i]));
  }
  for (size_t i = 0; i < dout_.size(); ++i) {
    add(dout_[i], OpPlan::has_bit(record.plan.reads_output, static_cast<int64_t>(i)));
    add(dout_[i], dout_[i].data != nullptr);
  }
  for (int i = 0; i < record.plan.saved_count; ++i) add(saved_[static_cast<size_t>(record.first_saved + i)], true);
  return row.backward;
}

}  // namespace tril
