// Inside of the gradient checker: what is checked, and one run of it, forward and backward. Used only in
// core/gradcheck.
#pragma once

#include <string>
#include <vector>

#include "core/gradcheck/gradcheck.h"

namespace tril::gradchecks {

using Numbers = std::vector<double>;

struct Input {
  std::string name;
  Shape shape;
  bool floating = true;
  Numbers values{};          // of a function's operand; token ids too
  bool bf16 = false;         // f32 runs store it as bf16
  std::string not_varied{};  // why it is not varied; empty: it is
  Tensor parameter{};        // of a loss of parameters: where the values lie
};

// Either a function of tensors (run, compose) or a loss of parameters (loss, binding).
struct Subject {
  std::vector<Input> inputs{};
  SampleFunction run{}, compose{};
  std::function<Tensor(Tape&)> loss{};
  ParameterGradients binding{};
  uint64_t seed = 1;
  bool bf16 = false;  // f32 runs store something as bf16

  [[nodiscard]] bool of_parameters() const { return static_cast<bool>(loss); }
  [[nodiscard]] bool varied(size_t input) const { return inputs[input].not_varied.empty(); }
  [[nodiscard]] int64_t count(size_t input) const { return inputs[input].shape.count(); }
};

[[nodiscard]] Subject subject_of(const Sample& sample, uint64_t seed);

// Standard normal numbers that f32 holds exactly.
[[nodiscard]] Numbers normal_numbers(uint64_t seed, uint32_t stream, int64_t count);
// The cotangent of an output, and what an input's gradient holds before an accumulating pass.
[[nodiscard]] Numbers cotangent_of(const Subject& subject, size_t output, int64_t count);
[[nodiscard]] Numbers offset_of(const Subject& subject, size_t input);

struct PassOptions {
  DType dtype = DType::f64;
  bool several_threads = false, poison = false, compose = false;
  bool offsets = false;  // gradients hold random numbers before the function's own arrive
  int only_input = -1;   // only this input wants a gradient; -1: all do
  int only_output = -1;  // the loss depends on this output alone; -1: on all
  double cotangent_factor = 1.0;
  int backwards = 1;  // calls of backward on one tape
};

struct Pass {
  std::vector<Numbers> outputs{};
  std::vector<Numbers> gradients{};  // one per input; empty if none arrived
  std::vector<bool> reached{};
  std::string changed{};  // the first tensor overwritten, as "input 1 by forward"; else empty
};

class Runner {
 public:
  Runner(Subject& subject, int threads);
  [[nodiscard]] Pass run(const PassOptions& options = {});
  // Forward alone: the elements of all outputs, one after the other.
  void evaluate(Numbers& outputs);
  [[nodiscard]] double get(size_t input, int64_t element) const;
  void set(size_t input, int64_t element, double value);

 private:
  [[nodiscard]] std::vector<Tensor> place(Tape& tape, DType dtype, bool gradients, int only_input);
  [[nodiscard]] std::vector<Tensor> call(Tape& tape, std::span<const Tensor> inputs, bool compose) const;
  [[nodiscard]] Tensor loss_of(Tape& tape, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                               const PassOptions& options) const;

  Subject& subject_;
  Context one_, several_;
};

}  // namespace tril::gradchecks
