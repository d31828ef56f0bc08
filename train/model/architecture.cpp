#include "train/model/architecture.h"

#include "nn/gpt.h"

namespace tril {

std::unique_ptr<LanguageModel> make_language_model(ParamStore& store, const TrainConfig& config, int64_t vocabulary) {
  return std::make_unique<Gpt>(store, GptConfig{.vocabulary = vocabulary,
                                                .context = config.context,
                                                .layers = config.layers,
                                                .heads = config.heads,
                                                .width = config.width,
                                                .kv_heads = config.kv_heads,
                                                .window = config.window,
                                                .dropout = config.dropout,
                                                .bias = config.bias,
                                                .gelu = config.gelu,
                                                .recompute = config.recompute});
}

}  // namespace tril
