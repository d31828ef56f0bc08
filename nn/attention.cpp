#include "nn/attention.h"

namespace tril {
namespace {

AttentionOptions checked(const MultiHeadAttentionOptions& options) {
  constexpr int64_t kWidest = int64_t{1} << 46;  // a product of 3 widths still is a number
  TRIL_CHECK(options.width >= 1 && options.width <= kWidest, "width", cat("1 to ", kWidest), cat(options.width));
  TRIL_CHECK(options.heads >= 1 && options.width % options.heads == 0, "heads",
             cat("a number that divides the width ", options.width), cat(options.heads));
  return {.heads = options.heads, .causal = options.causal, .scale = options.scale, .dropout = options.dropout};
}

}  // namespace

SelfAttention::SelfAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      c_attn_(scope / "c_attn", options.width, 3 * options.width, options.bias),
      c_proj_(scope / "c_proj", options.width, options.width, options.bias, options.projection_deviation) {}

Tensor SelfAttention::operator()(const Tensor& x, const Tensor& lengths) const {
  AttentionOptions options = options_;
  options.lengths = lengths;
  return c_proj_(attention(c_attn_(x), options));
}

CrossAttention::CrossAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      q_proj_(scope / "q_proj", options.width, options.width, options.bias),
      k_proj_(scope / "k_proj", options.width, options.width, options.bias),
      v_proj_(scope / "v_proj", options.width, options.width, options.bias),
      c_proj_(scope / "c_proj", options.width, options.width, options.bias, options.projection_deviation) {}

Tensor CrossAttention::operator()(const Tensor& x, const Tensor& memory, const Tensor& memory_lengths) const {
  AttentionOptions options = options_;
  options.lengths = memory_lengths;
  return c_proj_(attention(q_proj_(x), k_proj_(memory), v_proj_(memory), options));
}

}  // namespace tril
