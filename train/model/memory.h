// Whether a configuration fits into the machine, asked before anything is laid out. Pure functions.
#pragma once

#include <cstdint>

#include "nn/gpt.h"

namespace tril {

// About how many bytes training takes: weights, gradients and optimizer state, and the activations of one batch, where
// products read f32 or bf16.
[[nodiscard]] double training_bytes(const GptConfig& config, int64_t batch, DType precision);

// Throws, with both numbers, where that is more than the machine has.
void expect_memory(const GptConfig& config, int64_t batch, DType precision);

}  // namespace tril
