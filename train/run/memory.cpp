#include "train/run/memory.h"

#include <limits>

#include "core/autograd/profile.h"
#include "train/base/files.h"
#include "train/model/architecture.h"
#include "train/run/optimizer.h"

namespace tril {
namespace {

// Plans a forward and a backward pass over one batch. It is called twice: the second call, like every training step
// after the first, finds the memory laid out as the first one needed it.
void plan_pass(Context& context, const LanguageModel& model, GradStore& gradients, int64_t batch) {
  const Shape shape = {batch, model.context()};
  Tape tape(context);
  tape.bind(gradients.binding());
  const void* const nothing = gradients.data();  // is not read
  tape.backward(model.loss(tape.view(shape, DType::i32, nothing), tape.view(shape, DType::i32, nothing)));
}

}  // namespace

TrainingNeeds training_needs(const TrainConfig& config, int64_t vocabulary, DType precision) {
  ParamStore params;
  const auto model = make_language_model(params, config, vocabulary);
  params.freeze(ParamStore::Fill::planned);
  GradStore gradients(params);
  Context context({.threads = 1, .precision = precision, .plan = true});
  plan_pass(context, *model, gradients, config.batch);
  Profile profile;
  context.profile = &profile;
  plan_pass(context, *model, gradients, config.batch);

  const auto state = static_cast<int64_t>(make_optimizer(params, config)->state().size());
  const int64_t weights_and_gradients = 2, shadow = precision == DType::bf16 ? size_of(precision) : 0;
  const int64_t a_parameter = (weights_and_gradients + state) * size_of(params.dtype()) + shadow;
  TrainingNeeds needs{.parameters = params.count(),
                      .bytes = static_cast<double>(params.elements()) * static_cast<double>(a_parameter) +
                               static_cast<double>(context.memory().bytes())};
  for (const OpTime& op : profile.rows()) needs.flops += op.flops;
  return needs;
}

void expect_memory(const TrainConfig& config, int64_t vocabulary, DType precision) {
  constexpr double kMebibyte = 1 << 20, kBeyondNumbers = std::numeric_limits<double>::infinity();
  ParamStore params;
  const auto model = make_language_model(params, config, vocabulary);
  const auto bytes_of = [&](const TrainConfig& asked) {
    try {
      return training_needs(asked, vocabulary, precision).bytes;
    } catch (const Error&) { return kBeyondNumbers; }  // of tensors with more elements than a shape can have
  };
  const double needed = bytes_of(config), available = static_cast<double>(usable_memory());
  if (needed <= available) return;
  const auto mebibytes = [](double bytes) { return cat(static_cast<int64_t>(bytes / kMebibyte), " MiB"); };
  TrainConfig recomputing = config;
  recomputing.recompute = true;
  const bool recomputing_fits = bytes_of(recomputing) <= available;
  fail("model", cat("one to train within the ", mebibytes(available), " of memory that there are"),
       cat(model->describe(), ", batch ", config.batch, ", ",
           needed == kBeyondNumbers ? "more than can be counted" : cat("about ", mebibytes(needed))),
       recomputing_fits ? "make one of them smaller, or recompute with --recompute" : "make one of them smaller");
}

}  // namespace tril
