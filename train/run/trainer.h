// A step of training: takes the batch that comes next, then forward, backward, gradient clipping and the optimizer's
// update. The samples of a batch depend on (seed, samples drawn before) alone, so a batch of another size goes on where
// the last one ended. A Trainer holds the memory of a step and is used on its context's thread; model, context and
// dataset must outlive it. After the first steps nothing is allocated.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/machine/parallel.h"
#include "train/data/dataset.h"
#include "train/model/model_file.h"
#include "train/run/optimizer.h"
#include "train/run/schedule.h"

namespace tril {

// A loss or a gradient became NaN or infinite. Nothing was changed by the step that found it.
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

struct StepResult {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // the mean over the step's whole batch, before the update
  double norm = 0;   // of the gradient, before clipping
  double rate = 0;
};

class Trainer {
 public:
  // Trains `model` as its `training` says, and counts `step` and `samples` in its state. Context::seed(), which dropout
  // uses, should be the configuration's seed. In a context of precision bf16 the parameters get a bf16 shadow.
  Trainer(Context& context, Model& model, const Dataset& data);

  // Does the next step. `stopped` is asked before each micro-batch; if it returns true, the step ends without a result
  // and the model is unchanged.
  [[nodiscard]] std::optional<StepResult> step(FunctionRef<bool()> stopped);
  StepResult step();

  [[nodiscard]] int64_t steps_done() const { return optimizer_->updates(); }
  [[nodiscard]] int64_t samples_a_step() const;
  [[nodiscard]] int64_t tokens_a_step() const;
  [[nodiscard]] Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }

 private:
  [[nodiscard]] double micro_batch(int64_t index);
  [[nodiscard]] double checked_norm();
  [[noreturn]] void refuse(std::string_view what, double value, std::string_view first) const;

  Context& context_;
  Model& model_;
  const Dataset& data_;
  Schedule schedule_;
  GradStore gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  Tape tape_;
  std::vector<int32_t> inputs_, targets_;  // (batch, context)
};

// Throws NonFiniteError, naming the first parameter with a value that is not finite.
void expect_finite(const ParamStore& params);

}  // namespace tril
