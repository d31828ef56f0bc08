// Multi-head attention: each token takes a weighted mean over other tokens. In self-attention these are all tokens of
// its own sequence, if causal only itself and those before it; in cross-attention they are those of another sequence.
// Each head has its own weights and works on its own segment of the width.
#pragma once

#include "nn/layers.h"

namespace tril {

struct MultiHeadAttentionOptions {
  int64_t width = 0;
  AttentionOptions attention{};
  bool bias = true;
  double projection_deviation = kInitDeviation;  // of c_proj's initial weights
};

// Self-attention of x (B, T, C). c_attn makes queries, keys and values in one product; c_proj mixes the heads. The
// names are GPT-2's.
class SelfAttention {
 public:
  SelfAttention(const Scope& scope, const MultiHeadAttentionOptions& options);
  // lengths (B), i32, optional: how many positions of each sample are real.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& lengths = {}) const;
  // One share of the work in decoding: some key heads, the query heads that use them, and their part of the KV cache.
  // Its result lacks c_proj's bias: output_bias() is added once for all shares.
  [[nodiscard]] std::unique_ptr<ShareStep> decode_share(DecodeMemory& memory, int64_t share) const;
  [[nodiscard]] const Param& output_bias() const { return c_proj_.bias; }
  // The bytes of KV cache for each token of a stream, all shares together.
  [[nodiscard]] int64_t decode_bytes_a_token(const DecodeOptions& options) const;

 private:
  AttentionOptions options_;
  int64_t width_;
  Linear c_attn_, c_proj_;
};

// Queries from x (B, Tq, C), keys and values from a memory (B, Tk, C), whose length may differ.
class CrossAttention {
 public:
  CrossAttention(const Scope& scope, const MultiHeadAttentionOptions& options);
  // memory_lengths (B), i32, optional: how many positions of each memory are real.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& memory_lengths = {}) const;

 private:
  AttentionOptions options_;
  Linear q_proj_, k_proj_, v_proj_, c_proj_;
};

}  // namespace tril
