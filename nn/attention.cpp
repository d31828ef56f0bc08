#include "nn/attention.h"

namespace tril {
namespace {

AttentionOptions checked(const MultiHeadAttentionOptions& options) {
  constexpr int64_t kWidest = int64_t{1} << 46;  // a product of 3 widths still is a number
  const AttentionOptions& attention = options.attention;
  TRIL_CHECK(options.width >= 1 && options.width <= kWidest, "width", cat("1 to ", kWidest), cat(options.width));
  TRIL_CHECK(attention.heads >= 1 && options.width % attention.heads == 0, "heads",
             cat("a number that divides the width ", options.width), cat(attention.heads));
  TRIL_CHECK(attention.kv_heads >= 0 && attention.heads % attention.key_heads() == 0, "kv_heads",
             cat("a number that divides the ", attention.heads, " heads, or 0 for as many"), cat(attention.kv_heads));
  TRIL_CHECK(attention.window >= 0, "window", "1 or more keys, or 0 for all", cat(attention.window));
  return attention;
}

// Of all heads of keys, or of values.
int64_t key_width(const MultiHeadAttentionOptions& options) {
  return options.width / options.attention.heads * options.attention.key_heads();
}

}  // namespace

SelfAttention::SelfAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      c_attn_(scope / "c_attn", options.width, options.width + 2 * key_width(options), options.bias),
      c_proj_(scope / "c_proj", options.width, options.width, options.bias, options.projection_deviation) {}

Tensor SelfAttention::operator()(const Tensor& x, const Tensor& lengths) const {
  return c_proj_(attention(c_attn_(x), options_, {.lengths = lengths}));
}

CrossAttention::CrossAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      q_proj_(scope / "q_proj", options.width, options.width, options.bias),
      k_proj_(scope / "k_proj", options.width, key_width(options), options.bias),
      v_proj_(scope / "v_proj", options.width, key_width(options), options.bias),
      c_proj_(scope / "c_proj", options.width, options.width, options.bias, options.projection_deviation) {}

Tensor CrossAttention::operator()(const Tensor& x, const Tensor& memory, const Tensor& memory_lengths) const {
  return c_proj_(attention(q_proj_(x), k_proj_(memory), v_proj_(memory), options_, {.lengths = memory_lengths}));
}

}  // namespace tril
