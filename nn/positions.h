// Position embeddings. Attention alone does not see the order of tokens, so both kinds here are added to the token
// embeddings (B, T, C).
#pragma once

#include <vector>

#include "nn/layers.h"

namespace tril {

// A learned vector for every position up to `context`: weight (context, C).
class LearnedPositions {
 public:
  LearnedPositions(const Scope& scope, int64_t context, int64_t width);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
  [[nodiscard]] std::unique_ptr<InputStep> decode_step(DecodeMemory& memory) const;
  Param weight;
};

// Fixed waves, https://arxiv.org/abs/1706.03762 section 3.5: column 2i is sin(t / 10000^(2i/C)), column 2i+1 its
// cosine. An odd width ends on a sine. The object must outlive the passes that use it: they read its table.
class SinusoidalPositions {
 public:
  SinusoidalPositions(int64_t context, int64_t width);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
  [[nodiscard]] std::unique_ptr<InputStep> decode_step(DecodeMemory& memory) const;  // with a copy of the table
  [[nodiscard]] double at(int64_t position, int64_t column) const;

 private:
  int64_t context_, width_;
  std::vector<double> table_;  // (context, C)
  std::vector<float> table_f32_;
};

}  // namespace tril
