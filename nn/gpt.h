// The room nn: modules of a transformer, with named parameters and a const call.

// A decoder-only transformer, the whole model in this file and gpt.cpp: token and position embeddings, pre-norm blocks
// of causal self-attention and an MLP, a final norm, and a head tied to the token embedding. Shapes and parameter names
// are nanoGPT's and GPT-2's. A. Radford et al., "Language models are unsupervised multitask learners", 2019;
// https://github.com/karpathy/nanoGPT
#pragma once

#include <vector>

#include "nn/attention.h"
#include "nn/language_model.h"
#include "nn/layers.h"
#include "nn/positions.h"

namespace tril {

struct GptConfig {
  int64_t vocabulary = 0;  // V
  int64_t context = 64;    // T, the most tokens that are seen at once
  int64_t layers = 4, heads = 4;
  int64_t width = 128;   // C
  int64_t kv_heads = 0;  // key and value heads, shared by the query heads; 0: one for each query head
  int64_t window = 0;    // keys that a query sees, its own place included; 0: all up to it
  double dropout = 0.0;  // of embeddings, attention weights and residual branches
  bool bias = false;     // in linear layers and norms
  Gelu gelu = Gelu::erf;
  bool recompute = false;  // keep only what each block began with; backward computes the rest again

  [[nodiscard]] AttentionOptions attention() const {
    return {.heads = heads, .kv_heads = kv_heads, .causal = true, .window = window, .dropout = dropout};
  }
  // Throws an error that names the field if no such model can be made.
  void check() const;
};

// A transformer block: attention, then an MLP. Each is a branch that reads the normalised residual stream and is added
// to it.
class Block {
 public:
  Block(const Scope& scope, const GptConfig& config);
  void operator()(ResidualStream& stream) const;
  // Calls visit(norm, branch) for each branch, in order. The forward pass and decoding share it.
  template <class Visit>
  void each_branch(Visit&& visit) const {
    visit(ln_1_, attn_);
    visit(ln_2_, mlp_);
  }
  [[nodiscard]] int64_t decode_bytes_a_token(const DecodeOptions& options) const {
    return attn_.decode_bytes_a_token(options);
  }

 private:
  bool recompute_;
  LayerNorm ln_1_;
  SelfAttention attn_;
  LayerNorm ln_2_;
  Mlp mlp_;
};

class Gpt final : public LanguageModel {
 public:
  // Adds its parameters to the store, named as nanoGPT's: transformer.wte.weight, transformer.h.0.attn.c_attn.weight, …
  Gpt(ParamStore& store, const GptConfig& config);

  [[nodiscard]] Tensor operator()(const Tensor& ids) const override;
  [[nodiscard]] const GptConfig& config() const { return config_; }
  [[nodiscard]] const ParamStore& params() const override { return *store_; }
  [[nodiscard]] int64_t vocabulary() const override { return config_.vocabulary; }
  [[nodiscard]] int64_t context() const override { return config_.context; }
  [[nodiscard]] int64_t width() const override { return config_.width; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] int64_t decode_bytes_a_token(const DecodeOptions& options) const override;
  [[nodiscard]] DecodeSteps decode_steps(DecodeMemory& memory) const override;

 private:
  const ParamStore* store_;
  GptConfig config_;
  Embedding wte_;
  LearnedPositions wpe_;
  Dropout drop_;
  std::vector<Block> blocks_;
  LayerNorm ln_f_;
};

}  // namespace tril
