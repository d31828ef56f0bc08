// Whether a configuration fits into the machine, asked before anything is laid out. Pure functions.
#pragma once

#include <cstdint>

#include "nn/gpt.h"

namespace tril {

// About how many bytes training takes: weights, gradients and optimizer state, and the activations of one batch.
[[nodiscard]] double training_bytes(const GptConfig& config, int64_t batch);

// Throws, with both numbers, where that is more than the machine has.
void expect_memory(const GptConfig& config, int64_t batch);

}  // namespace tril
