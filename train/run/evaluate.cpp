#include "train/run/evaluate.h"

#include <algorithm>
#include <vector>

namespace tril {
namespace {

constexpr int64_t kTokensAPass = 2048;

}  // namespace

std::optional<double> evaluate(Context& context, const LanguageModel& model, const EvalWindows& windows,
                               FunctionRef<bool()> stopped) {
  const int64_t length = model.context();
  TRIL_CHECK(windows.context() == length, "evaluate", cat("windows of the model's context, ", length),
             cat(windows.context()));
  const int64_t rows = std::clamp<int64_t>(kTokensAPass / length, 1, windows.count());
  std::vector<int32_t> inputs(static_cast<size_t>(rows * length)), targets(inputs.size());
  Tape tape(context, Tape::Mode::evaluate);
  double sum = 0;
  for (int64_t first = 0; first < windows.count(); first += rows) {
    if (stopped()) return std::nullopt;
    windows.fill(first, rows, inputs.data(), targets.data());
    const Tensor loss = model.loss(tape.view({rows, length}, DType::i32, inputs.data()),
                                   tape.view({rows, length}, DType::i32, targets.data()),
                                   {.reduction = Reduction::sum, .ignore_index = EvalWindows::kIgnored});
    sum += loss.item();
    tape.reset();
  }
  return sum / static_cast<double>(windows.targets());
}

}  // namespace tril
