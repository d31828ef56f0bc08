#include "nn/gpt.h"

#include <algorithm>
#include <cmath>

namespace tril {
namespace {

// The more residual branches there are (2 in each layer), the smaller their initial weights, as in GPT-2.
double projection_deviation(const GptConfig& config) {
  return kInitDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

GptConfig checked(const GptConfig& config) {
  config.check();
  return config;
}

}  // namespace

Block::Block(const Scope& scope, const GptConfig& config)
    : recompute_(config.recompute),
      ln_1_(scope / "ln_1", config.width, config.bias),
      attn_(scope / "attn", {.width = config.width,
                             .attention = config.attention(),
                             .bias = config.bias,
                             .projection_deviation = projection_deviation(config)}),
      ln_2_(scope / "ln_2", config.width, config.bias),
      mlp_(scope / "mlp", config.width, 4 * config.width, config.bias, config.gelu, projection_deviation(config)) {}

void Block::operator()(ResidualStream& stream) const {
  Tape& tape = *stream.sum().tape;
  const int64_t mark = tape.mark();
  const Tensor before = stream.sum();
  Tensor normed, sum;  // after the first norm; kept if the block recomputes
  each_branch([&](const LayerNorm& norm, const auto& branch) {
    const Tensor x = norm(stream);
    if (normed.data == nullptr) normed = x, sum = stream.sum();
    stream.add(branch(x));
  });
  if (!recompute_) return;
  if (sum.slot != before.slot) tape.discard(before);
  tape.discard_since(mark, {normed, sum, stream.sum(), stream.branch()});
}

Gpt::Gpt(ParamStore& store, const GptConfig& config)
    : store_(&store),
      config_(checked(config)),
      wte_(Scope(store, "transformer") / "wte", config.vocabulary, config.width),
      wpe_(Scope(store, "transformer") / "wpe", config.context, config.width),
      drop_(config.dropout),
      blocks_([&] {
        std::vector<Block> blocks;
        for (int64_t i = 0; i < config.layers; ++i) blocks.emplace_back(Scope(store, "transformer") / "h" / i, config);
        return blocks;
      }()),
      ln_f_(Scope(store, "transformer") / "ln_f", config.width, config.bias) {}

Tensor Gpt::operator()(const Tensor& ids) const {
  TRIL_CHECK(ids.shape.rank() == 2 && ids.shape[1] <= config_.context, "gpt",
             cat("ids (B, T) with T at most the context ", config_.context), cat("shape ", ids.shape));
  const Tensor tokens = wte_(ids), placed = wpe_(tokens);
  ResidualStream stream(drop_(placed), config_.dropout);  // (B, T, C)
  ids.tape->discard(tokens);
  if (stream.sum().slot != placed.slot) ids.tape->discard(placed);
  for (const Block& block : blocks_) block(stream);
  const Tensor before = stream.sum(), normed = ln_f_(stream);
  if (config_.recompute) ids.tape->discard(before);
  return linear(normed, wte_.weight);  // the head is the token embedding: (B, T, V)
}

std::string Gpt::describe() const {
  return cat(config_.layers, config_.layers == 1 ? " layer, " : " layers, ", config_.width, " wide, context ",
             config_.context);
}

int64_t Gpt::decode_bytes_a_token(const DecodeOptions& options) const {
  int64_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.decode_bytes_a_token(options);
  return bytes;
}

// Packs the weights of each share one after the other, in the order of their use.
DecodeSteps Gpt::decode_steps(DecodeMemory& memory) const {
  DecodeSteps steps;
  steps.branches.resize(2 * blocks_.size());
  for (int64_t share = 0; share < memory.options().shares; ++share) {
    size_t at = 0;
    for (const Block& block : blocks_)
      block.each_branch([&](const LayerNorm&, const auto& branch) {
        steps.branches[at++].shares.push_back(branch.decode_share(memory, share));
      });
    const Range tokens = memory.options().share_of(config_.vocabulary, share, PackedWeight::padded(1));
    steps.head.push_back({memory.pack_rows(wte_.weight, {tokens}), tokens.begin});
  }
  size_t at = 0;
  for (const Block& block : blocks_)
    block.each_branch([&](const LayerNorm& norm, const auto& branch) {
      steps.branches[at].norm = norm.decode_step(memory);
      steps.branches[at++].bias = memory.copy(branch.output_bias());
    });
  steps.norm = ln_f_.decode_step(memory);
  steps.inputs.push_back(wte_.decode_step(memory));
  steps.inputs.push_back(wpe_.decode_step(memory));
  return steps;
}

void GptConfig::check() const {
  const auto positive = [](const char* field, int64_t value, int64_t most) {
    TRIL_CHECK(value >= 1 && value <= most, field, cat("1 to ", most), cat(value));
  };
  positive("vocabulary", vocabulary, int64_t{1} << 24);
  positive("context", context, int64_t{1} << 20);
  positive("layers", layers, 4096);
  positive("heads", heads, int64_t{1} << 16);
  positive("width", width, int64_t{1} << 16);
  TRIL_CHECK(width % heads == 0, "heads", cat("a number that divides the width ", width), cat(heads));
  TRIL_CHECK(kv_heads >= 0 && heads % attention().key_heads() == 0, "kv-heads",
             cat("a number that divides the ", heads, " heads, or 0 for as many"), cat(kv_heads));
  TRIL_CHECK(window >= 0 && window <= int64_t{1} << 20, "window", cat("0 to ", int64_t{1} << 20), cat(window));
  TRIL_CHECK(dropout >= 0.0 && dropout < 1.0, "dropout", "0 <= dropout < 1", cat(dropout));
}

}  // namespace tril
