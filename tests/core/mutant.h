// Ops that are wrong on purpose: a real op whose gradients are made apart, changed, and then written as they should be
// (or not). For the tests of the gradient checker.
#pragma once

#include <cmath>
#include <vector>

#include "core/autograd/op.h"

namespace tril::test {

using Numbers = std::vector<double>;

// The gradients of all operands (empty where none is wanted), to be changed.
using Edit = void (*)(const Backward& op, std::vector<Numbers>& gradients);
// Writes one operand's gradient.
using Write = void (*)(const Gradient& target, const Numbers& gradient);

inline void write_well(const Gradient& target, const Numbers& gradient) {
  dispatch("mutant", target.tensor.dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < gradient.size(); ++i) {
      T& at = target.ptr<T>()[i];
      at = target.accumulate ? at + static_cast<T>(gradient[i]) : static_cast<T>(gradient[i]);
    }
  });
}

inline double number_at(const Tensor& tensor, size_t i) {
  return tensor.dtype == DType::f64 ? tensor.ptr<double>()[i] : static_cast<double>(tensor.ptr<float>()[i]);
}

// What the op's own backward writes into empty buffers.
inline std::vector<Numbers> honest_gradients(const OpInfo& original, const Backward& op, const void* attrs) {
  const Forward& forward = op;
  std::vector<Tensor> inputs, output_gradients;
  for (int i = 0; i < op.count(); ++i) inputs.push_back(forward.in(i));
  OpPlan plan;
  Infer infer(original.name, inputs, plan);
  original.infer(infer, attrs);
  for (int i = 0; i < plan.output_count; ++i) output_gradients.push_back(op.dout(i));

  std::vector<Numbers> memory, gradients;
  std::vector<Gradient> targets;
  for (int i = 0; i < op.count(); ++i) {
    memory.emplace_back(static_cast<size_t>(inputs[static_cast<size_t>(i)].count()));
    Gradient target{.tensor = inputs[static_cast<size_t>(i)]};
    target.tensor.data = op.din(i) ? memory.back().data() : nullptr;
    targets.push_back(target);
  }
  original.backward(Backward(forward, plan, output_gradients, targets), attrs);
  for (int i = 0; i < op.count(); ++i) {
    Numbers gradient;
    for (size_t e = 0; op.din(i) && e < memory[static_cast<size_t>(i)].size(); ++e)
      gradient.push_back(number_at(targets[static_cast<size_t>(i)].tensor, e));
    gradients.push_back(gradient);
  }
  return gradients;
}

struct Name {
  char text[24]{};
  constexpr Name(const char* name) {  // NOLINT: implicit on purpose
    for (size_t i = 0; name[i] != '\0'; ++i) text[i] = name[i];
  }
};

template <Name kOp, Edit kEdit, Write kWrite = write_well>
const OpInfo& mutant() {
  static const OpInfo made = [] {
    OpInfo info = *find_op(kOp.text);
    info.backward = [](const Backward& op, const void* attrs) {
      std::vector<Numbers> gradients = honest_gradients(*find_op(kOp.text), op, attrs);
      kEdit(op, gradients);
      for (int i = 0; i < op.count(); ++i)
        if (op.din(i)) kWrite(op.din(i), gradients[static_cast<size_t>(i)]);
    };
    return info;
  }();
  return made;
}

}  // namespace tril::test
