// How much memory and work the training of a model takes, known before anything is allocated. The numbers come from a
// pass that is only planned (ContextOptions::plan), so they are what the modules and ops themselves declare. Pure
// functions.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "train/model/config.h"

namespace tril {

struct TrainingNeeds {
  int64_t parameters = 0;
  double bytes = 0;  // weights, gradients, optimizer state, and what forward and backward of one batch take
  double flops = 0;  // floating-point operations of matrix products and attention, forward and backward of one batch
};
[[nodiscard]] TrainingNeeds training_needs(const TrainConfig& config, int64_t vocabulary, DType precision);

// Throws, naming both numbers, if training takes more memory than the machine has.
void expect_memory(const TrainConfig& config, int64_t vocabulary, DType precision);

}  // namespace tril
