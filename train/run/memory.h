// What training a model takes, known before anything is laid out: from a pass that is only planned
// (ContextOptions::plan), so it is what the modules and ops themselves declare. Pure functions.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "train/model/config.h"

namespace tril {

struct TrainingNeeds {
  int64_t parameters = 0;
  double bytes = 0;  // weights, gradients, optimizer state, and all that one batch leaves behind for backward
  double flops = 0;  // floating-point operations of matrix products and attention, forward and backward, of one batch
};
[[nodiscard]] TrainingNeeds training_needs(const TrainConfig& config, int64_t vocabulary, DType precision);

// Throws, with both numbers, where that is more than the machine has.
void expect_memory(const TrainConfig& config, int64_t vocabulary, DType precision);

}  // namespace tril
