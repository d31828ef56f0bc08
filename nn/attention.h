// The room nn: modules of a transformer, with named parameters and a const call.

// Multi-head attention. Tokens are nodes of a directed graph that look at each other: in self-attention at all of their
// own sequence, causal at those before them, in cross-attention at another sequence. Heads are segments of the width,
// each with its own look.
#pragma once

#include "nn/layers.h"

namespace tril {

struct MultiHeadAttentionOptions {
  int64_t width = 0;
  AttentionOptions attention{};
  bool bias = true;
  double projection_deviation = kInitDeviation;  // of c_proj's initial weights
};

// Self-attention of x (B, T, C). c_attn makes queries, keys and values in one product; c_proj mixes the heads. GPT-2's
// names.
class SelfAttention {
 public:
  SelfAttention(const Scope& scope, const MultiHeadAttentionOptions& options);
  // lengths (B), i32, optional: how many positions of each sample are real.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& lengths = {}) const;
  // Some heads of keys with the queries that look at them, and what is kept of earlier tokens' keys and values. The
  // share of c_proj's sums lacks its bias.
  [[nodiscard]] std::unique_ptr<ShareStep> decode_share(DecodeMemory& memory, int64_t share) const;
  [[nodiscard]] const Param& output_bias() const { return c_proj_.bias; }
  [[nodiscard]] int64_t decode_bytes_a_token(const DecodeOptions& options) const;  // of keys and values, of all shares

 private:
  AttentionOptions options_;
  int64_t width_;
  Linear c_attn_, c_proj_;
};

// Queries from x (B, Tq, C), keys and values from a memory (B, Tk, C) of another length.
class CrossAttention {
 public:
  CrossAttention(const Scope& scope, const MultiHeadAttentionOptions& options);
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& memory_lengths = {}) const;

 private:
  AttentionOptions options_;
  Linear q_proj_, k_proj_, v_proj_, c_proj_;
};

}  // namespace tril
