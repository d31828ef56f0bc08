#include "core/autograd/tape.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/autograd/profile.h"
#include "core/machine/parallel.h"

namespace tril {
namespace {

template <class T>
void add_into(T* sum, const T* term, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = T(static_cast<Compute<T>>(sum[i]) + static_cast<Compute<T>>(term[i]));
}

// A tape counts its slots and operands in int32_t.
void expect_room(const char* op, size_t places) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  TRIL_CHECK(places < kMost, op, cat("at most ", kMost, " tensors and operands on a tape"), "more",
             "reset it between two passes");
}

}  // namespace

Tape::~Tape() {
  reset();
  context_.end_life(life_);
}

Tensor Tape::add_slot(const Tensor& value, bool wants_gradient, int32_t parameter) {
  expect_room("tape", slots_.size());
  Slot slot;
  slot.value = value;
  slot.value.tape = TapeRef(life_);
  slot.value.slot = static_cast<int32_t>(slots_.size());
  slot.wants_gradient = wants_gradient;
  slot.parameter = parameter;
  slots_.push_back(slot);
  return slot.value;
}

Tensor Tape::allocate(const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.shape = shape;
  tensor.dtype = dtype;
  tensor.data = context_.memory().allocate(tensor.bytes());
  poison(tensor.data, tensor.bytes());
  return tensor;
}

void Tape::poison(void* data, int64_t bytes) const {
  if (context_.poison && !context_.plans()) std::memset(data, 0xff, static_cast<size_t>(bytes));
}

Tensor Tape::copy_in(const char* what, const Shape& shape, DType dtype, const void* values, int64_t count,
                     bool wants_gradient) {
  context_.acquire(this, what);
  TRIL_CHECK(count == shape.count(), what, cat(shape.count(), " values for shape ", shape), cat(count));
  TRIL_CHECK(!wants_gradient || is_floating(dtype), what, "f32, f64 or bf16", name_of(dtype));
  const Tensor tensor = allocate(shape, dtype);
  if (count > 0 && !context_.plans()) std::memcpy(tensor.data, values, static_cast<size_t>(tensor.bytes()));
  const Tensor added = add_slot(tensor, wants_gradient && training());
  slots_.back().keeps_gradient = wants_gradient;
  return added;
}

Tensor Tape::view(const Shape& shape, DType dtype, const void* memory) {
  TRIL_CHECK(memory != nullptr, "view", "memory to look at", "a null pointer");
  Tensor tensor;
  tensor.data = const_cast<void*>(memory);
  tensor.shape = shape;
  tensor.dtype = dtype;
  return add_slot(tensor, false);
}

void Tape::bind(const ParameterGradients& gradients) {
  const size_t count = gradients.received.size();
  TRIL_CHECK(gradients.offsets.size() == count && gradients.names.size() == count, "bind",
             cat("an offset and a name for each of ", count, " parameters"),
             cat(gradients.offsets.size(), " and ", gradients.names.size()));
  parameters_ = gradients;
}

// Whether the parameter belongs to the store whose gradients are bound to this tape.
bool Tape::is_bound(const Tensor& parameter) const {
  const auto* const data = static_cast<const std::byte*>(parameter.data);
  return static_cast<size_t>(parameter.slot) < parameters_.received.size() && data >= parameters_.values &&
         data < parameters_.values + parameters_.bytes;
}

int32_t Tape::slot_of_parameter(const char* op, const Tensor& tensor) {
  TRIL_CHECK(is_planned(tensor.data) == context_.plans(), op,
             context_.plans() ? "parameters of a store that plans, as the context does" : "parameters with values",
             "others");
  const auto index = static_cast<size_t>(tensor.slot);
  const bool bound = parameters_.gradients != nullptr && training();
  if (bound) {
    TRIL_CHECK(is_bound(tensor), op, "a parameter of the store that is bound to the tape", "one of another store",
               "bind the gradients of its store");
  }
  if (parameter_slots_.size() <= index) parameter_slots_.resize(index + 1, -1);
  int32_t& slot = parameter_slots_[index];
  if (slot < 0 || slots_[static_cast<size_t>(slot)].value.data != tensor.data)
    slot = add_slot(tensor, bound, tensor.slot).slot;
  return slot;
}

int32_t Tape::resolve(const char* op, const Tensor& tensor) {
  tensor.expect_current(op);
  if (tensor.tape == this && tensor.is_on_tape()) {
    TRIL_CHECK(!slots_[static_cast<size_t>(tensor.slot)].discarded, op, "tensors that are still there",
               cat("one of shape ", tensor.shape, " that was discarded"));
    return tensor.slot;
  }
  TRIL_CHECK(!tensor.is_on_tape(), op, "operands on one tape", "operands on two",
             "bring the other in with Tape::constant");
  TRIL_CHECK(tensor.data != nullptr || tensor.count() == 0, op, "a tensor", "an empty one that was never made");
  return tensor.is_parameter() ? slot_of_parameter(op, tensor) : add_slot(tensor, false).slot;
}

std::array<Tensor, OpPlan::kMaxResults> Tape::record(const OpInfo& op, std::span<const Tensor> inputs,
                                                     const void* attrs) {
  context_.acquire(this, op.name);
  expect_room(op.name, std::max(operands_.size(), saved_.size()) + inputs.size() + OpPlan::kMaxResults);
  Record record;
  record.op = &op;
  record.draws = {context_.step(), context_.first_sample(), ops_run_++};
  record.first_operand = static_cast<int32_t>(operands_.size());
  record.operands = static_cast<int32_t>(inputs.size());
  std::memcpy(record.attrs.data(), attrs, static_cast<size_t>(op.attrs_bytes));

  inputs_.clear();
  bool wants_gradient = false;
  for (const Tensor& input : inputs) {
    const int32_t slot = resolve(op.name, input);
    operands_.push_back(slot);
    inputs_.push_back(slots_[static_cast<size_t>(slot)].value);
  }
  Infer infer(op.name, inputs_, record.plan);
  op.infer(infer, attrs);
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!OpPlan::has_bit(record.plan.without_gradient, static_cast<int64_t>(i)))
      wants_gradient |=
          slots_[static_cast<size_t>(operands_[static_cast<size_t>(record.first_operand) + i])].wants_gradient;

  std::array<Tensor, OpPlan::kMaxResults> outputs;
  record.first_output = static_cast<int32_t>(slots_.size());
  record.first_saved = static_cast<int32_t>(saved_.size());
  const auto output_count = static_cast<size_t>(record.plan.output_count),
             saved_count = static_cast<size_t>(record.plan.saved_count);
  for (size_t i = 0; i < output_count; ++i) {
    Tensor value;
    const bool alias = i == 0 && record.plan.aliases_input;
    if (alias) {
      value = inputs_[0];
      value.shape = record.plan.outputs[0].shape;
      slots_[static_cast<size_t>(operands_[static_cast<size_t>(record.first_operand)])].owns_memory = false;
    } else {
      value = allocate(record.plan.outputs[i].shape, record.plan.outputs[i].dtype);
    }
    outputs[i] = add_slot(value, wants_gradient && is_floating(value.dtype));
    slots_.back().owns_memory = !alias;
    if (wants_gradient) slots_.back().record = static_cast<int32_t>(records_.size());
  }
  for (size_t i = 0; i < saved_count; ++i)
    saved_.push_back(allocate(record.plan.saved[i].shape, record.plan.saved[i].dtype));
  const Forward forward(op.name, context_, inputs_, {outputs.data(), output_count},
                        {saved_.data() + record.first_saved, saved_count}, record.draws);
  {
    const Timed timed(context_.profile == nullptr ? nullptr : &profile_forward(record, forward));
    if (!context_.plans()) op.forward(forward, attrs);
  }
  if (wants_gradient) {
    records_.push_back(record);
  } else {
    operands_.resize(static_cast<size_t>(record.first_operand));
    saved_.resize(static_cast<size_t>(record.first_saved));
  }
  return outputs;
}

// Where an operand's gradient is written: the first one overwrites, later ones add; a parameter's lies in the bound
// buffer.
Gradient Tape::target_of(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  Gradient gradient;
  gradient.tensor = slot.value;
  if (slot.parameter >= 0) {
    gradient.tensor.data =
        parameters_.gradients + (static_cast<const std::byte*>(slot.value.data) - parameters_.values);
    gradient.accumulate = parameters_.received[static_cast<size_t>(slot.parameter)] != 0;
  } else {
    gradient.accumulate = slot.has_gradient;
    if (slot.gradient == nullptr) slot.gradient = context_.memory().allocate(slot.value.bytes());
    gradient.tensor.data = slot.gradient;
  }
  if (!gradient.accumulate) poison(gradient.tensor.data, gradient.tensor.bytes());
  return gradient;
}

void Tape::backward_record(const Record& record) {
  const auto outputs = static_cast<size_t>(record.plan.output_count);
  bool reached = false;
  dout_.clear();
  for (size_t i = 0; i < outputs; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(record.first_output) + i];
    Tensor gradient = slot.value;
    gradient.data = slot.has_gradient ? slot.gradient : nullptr;
    reached |= slot.has_gradient;
    dout_.push_back(gradient);
  }
  if (!reached) return;

  remake_for(record);
  inputs_.clear();
  din_.clear();
  targets_.clear();
  for (int32_t i = 0; i < record.operands; ++i) {
    const int32_t index = operands_[static_cast<size_t>(record.first_operand + i)];
    const Slot& slot = slots_[static_cast<size_t>(index)];
    inputs_.push_back(slot.value);
    Gradient gradient;
    Target target{-1, nullptr};
    if (slot.wants_gradient && !OpPlan::has_bit(record.plan.without_gradient, i)) {
      target.slot = index;
      const bool repeated =
          std::any_of(targets_.begin(), targets_.end(), [&](const Target& earlier) { return earlier.slot == index; });
      if (repeated) {
        target.temporary = context_.memory().allocate(slot.value.bytes());
        gradient.tensor = slot.value;
        gradient.tensor.data = target.temporary;
        poison(target.temporary, slot.value.bytes());
      } else {
        gradient = target_of(index);
      }
    }
    targets_.push_back(target);
    din_.push_back(gradient);
  }
  std::array<Tensor, OpPlan::kMaxResults> values;
  for (size_t i = 0; i < outputs; ++i) values[i] = slots_[static_cast<size_t>(record.first_output) + i].value;
  const Forward forward(record.op->name, context_, inputs_, {values.data(), outputs},
                        {saved_.data() + record.first_saved, static_cast<size_t>(record.plan.saved_count)},
                        record.draws);
  {
    const Timed timed(context_.profile == nullptr ? nullptr : &profile_backward(record));
    if (!context_.plans()) record.op->backward(Backward(forward, record.plan, dout_, din_), record.attrs.data());
  }
  finish_targets(record);
}

void Tape::finish_targets(const Record& record) {
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].slot < 0) continue;
    Slot& slot = slots_[static_cast<size_t>(targets_[i].slot)];
    if (targets_[i].temporary != nullptr) {
      const Gradient sum = [&] {
        Gradient first = din_[i];
        for (size_t j = 0; j < i; ++j)
          if (targets_[j].slot == targets_[i].slot && targets_[j].temporary == nullptr) first = din_[j];
        return first;
      }();
      add_gradient(record.op->name, sum.tensor, din_[i].tensor.data);
      context_.memory().free(targets_[i].temporary, slot.value.bytes());
    }
    slot.has_gradient = true;
    if (slot.parameter >= 0) parameters_.received[static_cast<size_t>(slot.parameter)] = 1;
  }
  for (int32_t i = 0; i < record.plan.output_count; ++i) {
    Slot& slot = slots_[static_cast<size_t>(record.first_output + i)];
    if (slot.keeps_gradient && slot.has_gradient) keep(record.op->name, slot);
    release_gradient(slot);
  }
}

// A kept gradient is stored apart from the one that is being propagated: otherwise a second backward would propagate
// the first one's gradient again.
void Tape::keep(const char* op, Slot& slot) {
  if (slot.kept == nullptr) {
    slot.kept = std::exchange(slot.gradient, nullptr);
    return;
  }
  Tensor sum = slot.value;
  sum.data = slot.kept;
  add_gradient(op, sum, slot.gradient);
}

void Tape::add_gradient(const char* op, const Tensor& sum, const void* term) const {
  if (context_.plans()) return;
  dispatch_with_bf16(op, sum.dtype, [&](auto type) {
    using T = decltype(type);
    add_into(static_cast<T*>(sum.data), static_cast<const T*>(term), sum.count());
  });
}

void Tape::release_gradient(Slot& slot) {
  if (slot.gradient != nullptr) context_.memory().free(slot.gradient, slot.value.bytes());
  slot.gradient = nullptr;
  slot.has_gradient = false;
}

void Tape::backward(const Tensor& loss, const BackwardOptions& options) {
  (void)checked_slot("backward", loss);
  TRIL_CHECK(loss.count() == 1, "backward", "a loss with one element", cat("shape ", loss.shape),
             "reduce it with sum or mean, or pass a cotangent");
  run_backward(loss, options);
}

void Tape::backward(const Tensor& y, const Tensor& cotangent, const BackwardOptions& options) {
  (void)checked_slot("backward", y);
  TRIL_CHECK(cotangent.shape == y.shape && cotangent.dtype == y.dtype, "backward",
             cat("a cotangent of ", y.dtype, " ", y.shape), cat(cotangent.dtype, " ", cotangent.shape));
  (void)resolve("backward", cotangent);
  run_backward(y, options, &cotangent);
}

const Tape::Slot& Tape::checked_slot(const char* what, const Tensor& x) const {
  TRIL_CHECK(x.tape != this || x.tape.is_current(), what, "a tensor of the current pass",
             cat("one of shape ", x.shape, " made before its tape was reset"));
  x.expect_current(what);
  TRIL_CHECK(x.tape == this && x.is_on_tape(), what, "a tensor of this tape",
             x.tape == this ? "a gradient" : "another's");
  return slots_[static_cast<size_t>(x.slot)];
}

// Backward begins with the cotangent, or with 1.
void Tape::seed_gradient(const Tensor& y, const Gradient& seed, const Tensor* cotangent) const {
  if (context_.plans()) return;
  dispatch_with_bf16("backward", y.dtype, [&](auto type) {
    using T = decltype(type);
    T* const gradient = seed.ptr<T>();
    for (int64_t i = 0; i < y.count(); ++i) {
      const T value = cotangent == nullptr ? T(1) : cotangent->ptr<T>()[i];
      if (seed.accumulate)
        add_into(gradient + i, &value, 1);
      else
        gradient[i] = value;
    }
  });
}

void Tape::run_backward(const Tensor& y, const BackwardOptions& options, const Tensor* cotangent) {
  Slot& root = slots_[static_cast<size_t>(y.slot)];
  TRIL_CHECK(training(), "backward", "a tape in train mode", "one in evaluate mode, which records nothing");
  TRIL_CHECK(root.wants_gradient, "backward", "a tensor that depends on a variable or a bound parameter",
             "one that depends on neither", "make an input with Tape::variable, or bind the parameters' gradients");
  seed_gradient(y, target_of(y.slot), cotangent);
  root.has_gradient = true;
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    backward_record(*record);
    discard_remade(*record);
  }
  options.allow_unused ? clear_unreceived() : expect_all_received();
}

// Zeros the gradients of unused parameters, so that those of an earlier step are not taken for this one's.
void Tape::clear_unreceived() const {
  if (context_.plans()) return;
  for (size_t i = 0; i < parameters_.offsets.size(); ++i) {
    if (parameters_.received[i] != 0) continue;
    const int64_t begin = parameters_.offsets[i],
                  end = i + 1 < parameters_.offsets.size() ? parameters_.offsets[i + 1] : parameters_.bytes;
    std::memset(parameters_.gradients + begin, 0, static_cast<size_t>(end - begin));
  }
}

std::string ParameterGradients::missing() const {
  constexpr int64_t kShown = 8;
  std::string text;
  int64_t count = 0;
  for (size_t i = 0; i < received.size(); ++i)
    if (received[i] == 0 && ++count <= kShown) text += (count > 1 ? ", " : "") + names[i];
  if (count > kShown) text += cat(" and ", count - kShown, " more");
  return text;
}

void Tape::expect_all_received() const {
  const std::string missing = parameters_.missing();
  TRIL_CHECK(missing.empty(), "backward", "a gradient for every parameter", cat("none for ", missing),
             "use them in the loss, or pass allow_unused");
}

bool Tape::has_gradient(const Tensor& x) const {
  if (x.is_parameter()) return is_bound(x) && parameters_.received[static_cast<size_t>(x.slot)] != 0;
  const Slot& slot = checked_slot("gradient", x);
  return slot.has_gradient || slot.kept != nullptr;
}

Tensor Tape::gradient(const Tensor& x) const {
  TRIL_CHECK(has_gradient(x), "gradient", "a tensor that received a gradient",
             cat("one of shape ", x.shape, " that received none"),
             "is it a variable, or kept with keep_gradient, and does the loss depend on it?");
  Tensor gradient = x;  // the copy keeps x's tape and pass
  gradient.slot = -1;
  gradient.shadow = nullptr;
  if (x.is_parameter()) {
    gradient.data = parameters_.gradients + (static_cast<const std::byte*>(x.data) - parameters_.values);
  } else {
    const Slot& slot = slots_[static_cast<size_t>(x.slot)];
    gradient.data = slot.kept != nullptr ? slot.kept : slot.gradient;
  }
  return gradient;
}

void Tape::keep_gradient(const Tensor& x) {
  (void)checked_slot("keep_gradient", x);
  slots_[static_cast<size_t>(x.slot)].keeps_gradient = true;
}

// Frees all buffers of the pass at once, so this cannot fail.
void Tape::reset() {
  slots_.clear();
  records_.clear();
  operands_.clear();
  saved_.clear();
  std::fill(parameter_slots_.begin(), parameter_slots_.end(), -1);
  context_.release(this);
  ++life_.pass;
  ops_run_ = 0;
}

}  // namespace tril
