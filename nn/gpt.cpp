#include "nn/gpt.h"

#include <algorithm>
#include <cmath>

namespace tril {
namespace {

// Residual branches start smaller the more of them there are: 2 a layer.
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
  const Tensor before = stream.sum(), normed = ln_1_(stream), sum = stream.sum();
  stream.add(attn_(normed));
  stream.add(mlp_(ln_2_(stream)));
  if (!recompute_) return;
  if (sum.slot != before.slot) tape.discard(before);
  tape.discard_since(mark, {normed, sum, stream.sum(), stream.branch()});
}

Gpt::Gpt(ParamStore& store, const GptConfig& config)
    : config_(checked(config)),
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

Tensor Gpt::loss(const Tensor& ids, const Tensor& targets, const CrossEntropyOptions& options) const {
  return cross_entropy((*this)(ids), targets, options);
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

int64_t GptConfig::parameters() const {
  const int64_t norm = bias ? 2 * width : width;
  const int64_t qkv = width + 2 * (width / heads * attention().key_heads());
  const int64_t block = 2 * norm + qkv * width + 9 * width * width + (bias ? qkv + 6 * width : 0);
  return (vocabulary + context) * width + layers * block + norm;
}

double GptConfig::step_flops(int64_t batch) const {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double tokens = number(batch) * number(context),
               qkv = number(width + 2 * (width / heads * attention().key_heads())),
               weights = number(layers * width) * (qkv + number(9 * width)) + number(vocabulary * width);
  const int64_t seen = window == 0 ? context : std::min(window, context);  // by the last query; each before it one less
  const double pairs = number(batch) * (number(seen) * number(seen + 1) / 2.0 + number(context - seen) * number(seen));
  return 6.0 * tokens * weights + 12.0 * pairs * number(layers * width);
}

}  // namespace tril
