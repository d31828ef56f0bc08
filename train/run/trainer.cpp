#include "train/run/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/profile.h"

namespace tril {
namespace {

constexpr const char* kMend = "a lower --lr, a longer --warmup or --clip may help";

// The profile's row for a part of the step that is no op; null if there is no profile.
double* seconds_of(const Context& context, const char* part) {
  return context.profile == nullptr ? nullptr : &context.profile->row(part).forward;
}

bool all_finite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

}  // namespace

Trainer::Trainer(Context& context, Model& model, const Dataset& data)
    : context_(context),
      model_(model),
      data_(data),
      schedule_{model.training.lr, model.training.min_lr, model.training.warmup, model.training.steps},
      gradients_(*model.params),
      optimizer_(make_optimizer(*model.params, model.training)),
      tape_(context),
      inputs_(static_cast<size_t>(model.training.batch * model.training.context)),
      targets_(inputs_.size()) {
  constexpr int64_t kMostSamples = int64_t{1} << 32;  // the most that Context::set_step can count
  const TrainConfig& config = model.training;
  TRIL_CHECK(config.accumulate >= 1 && config.batch <= kMostSamples / config.accumulate, "accumulate",
             cat("1 or more, and batch x accumulate of at most ", kMostSamples),
             cat("batch ", config.batch, " and accumulate ", config.accumulate));
  tape_.bind(gradients_.binding());
  if (context.precision() == DType::bf16) model.params->keep_shadow();
}

int64_t Trainer::samples_a_step() const { return model_.training.batch * model_.training.accumulate; }

int64_t Trainer::tokens_a_step() const { return samples_a_step() * model_.training.context; }

// Adds a micro-batch's part of the whole batch's mean gradient to `gradients_`. Returns its own mean loss.
double Trainer::micro_batch(int64_t index) {
  const auto& [batch, parts, length] =
      std::tie(model_.training.batch, model_.training.accumulate, model_.training.context);
  const int64_t first = index * batch;
  {
    const Timed timed(seconds_of(context_, "batch"));
    data_.batch(static_cast<uint64_t>(model_.training.seed), model_.state.samples + first, batch, length,
                inputs_.data(), targets_.data());
  }
  context_.set_step(steps_done(), first);
  struct Pass {  // resets the tape also if the step fails
    Tape& tape;
    ~Pass() { tape.reset(); }
  } const pass{tape_};
  const Tensor loss = model_.lm->loss(tape_.view({batch, length}, DType::i32, inputs_.data()),
                                      tape_.view({batch, length}, DType::i32, targets_.data()));
  const double value = loss.item();
  if (!std::isfinite(value)) refuse("loss", value, tape_.first_non_finite());
  tape_.backward(parts == 1 ? loss : scale(loss, 1.0 / static_cast<double>(parts)));
  return value;
}

double Trainer::checked_norm() {
  const double norm = [&] {
    const Timed timed(seconds_of(context_, "gradient norm"));
    return optimizer_->norm(gradients_, context_.threads());
  }();
  if (std::isfinite(norm)) return norm;
  for (const ParamInfo& param : model_.params->params())
    if (!all_finite(gradients_.of(param).ptr<float>(), param.value.count())) refuse("gradient", norm, param.name);
  refuse("gradient", norm, "the norm of all together");
}

void Trainer::refuse(std::string_view what, double value, std::string_view first) const {
  throw NonFiniteError(
      cat("step ", steps_done() + 1, ": expected a finite ", what, ", got ", value, ", first in ", first, "; ", kMend));
}

std::optional<StepResult> Trainer::step(FunctionRef<bool()> stopped) {
  gradients_.reset();
  double loss = 0;
  for (int64_t i = 0; i < model_.training.accumulate; ++i) {
    if (stopped()) return std::nullopt;
    loss += micro_batch(i) / static_cast<double>(model_.training.accumulate);
  }
  const double norm = checked_norm(), rate = schedule_.rate(steps_done());
  const Timed timed(seconds_of(context_, optimizer_->name()));
  optimizer_->update(gradients_, rate, clip_scale(norm, model_.training.clip), context_.threads());
  model_.state.step = steps_done();
  model_.state.samples += samples_a_step();
  return StepResult{.step = steps_done(), .loss = loss, .norm = norm, .rate = rate};
}

StepResult Trainer::step() {
  return *step([] { return false; });
}

void expect_finite(const ParamStore& params) {
  for (const ParamInfo& param : params.params())
    if (!all_finite(param.value.ptr<float>(), param.value.count()))
      throw NonFiniteError(cat("weights: expected finite values, got others, first in ", param.name));
}

}  // namespace tril
