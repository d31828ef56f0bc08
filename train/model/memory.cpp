#include "train/model/memory.h"

#include "core/base/check.h"
#include "nn/layers.h"
#include "train/base/files.h"

namespace tril {

double training_bytes(const GptConfig& config, int64_t batch, DType precision) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  constexpr double kCopies = 4, kFloat = 4;  // weights, gradients, and the optimizer's two moments
  // Kept for backward: norms and sums, q k v, attention, and the MLP's inner layer, before its GELU and, if small,
  // after it; recomputing, what a layer begins with, and the rest of one.
  constexpr double kWidthsALayer = 12, kWidthsInside = 4, kWidthsToBegin = 2;
  constexpr double kWidthsAtWork = 20;  // of one layer in backward, mostly gradients
  constexpr double kNarrow = 0.6;       // of that in bf16, with the f32 that stays
  const double tokens = number(batch) * number(config.context), layers = number(config.layers);
  const double inside = tokens * kWidthsInside * number(config.width) * static_cast<double>(size_of(precision));
  const double a_layer = kWidthsALayer + (inside < static_cast<double>(Mlp::kRemadeFrom) ? kWidthsInside : 0);
  const double widths = (config.recompute ? layers * kWidthsToBegin + a_layer : layers * a_layer) + kWidthsAtWork;
  const double share = precision == DType::bf16 ? kNarrow : 1.0;
  const double activations = tokens * (share * widths * number(config.width) + 2 * number(config.vocabulary));
  return kFloat * (kCopies * number(config.parameters()) + activations);
}

void expect_memory(const GptConfig& config, int64_t batch, DType precision) {
  config.check();
  constexpr double kMebibyte = 1 << 20;
  const double needed = training_bytes(config, batch, precision), available = static_cast<double>(usable_memory());
  const auto mebibytes = [](double bytes) { return cat(static_cast<int64_t>(bytes / kMebibyte), " MiB"); };
  GptConfig recomputing = config;
  recomputing.recompute = true;
  const bool recomputing_fits = training_bytes(recomputing, batch, precision) <= available;
  TRIL_CHECK(needed <= available, "model",
             cat("one to train within the ", mebibytes(available), " of memory that there are"),
             cat(config.layers, " layers, ", config.width, " wide, context ", config.context, ", batch ", batch,
                 ", about ", mebibytes(needed)),
             recomputing_fits ? "make one of them smaller, or recompute with --recompute" : "make one of them smaller");
}

}  // namespace tril
