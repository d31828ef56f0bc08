#include "train/run/run.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <new>

#include "train/base/files.h"
#include "train/base/utf8.h"
#include "train/data/text_place.h"
#include "train/model/sampler.h"
#include "train/run/evaluate.h"

namespace tril {
namespace {

Report::Options report_options(const Run::Parts& parts, const Run::Options& options, const Trainer& trainer) {
  const TrainConfig& config = parts.model.training;
  return {.log_path = parts.folder.file(kLogFile),
          .steps = config.steps,
          .log_every = config.log_every,
          .tokens_a_step = trainer.tokens_a_step(),
          .unit = config.tokens == TokenKind::kChar ? "characters" : "bytes",
          .best_possible = options.best_possible};
}

// Renames a file and returns its new name; empty if that fails.
std::string put_aside(const std::string& path) {
  const std::string aside = cat(path, ".unreadable");
  std::string name = aside;
  std::error_code error;
  for (int64_t i = 2; std::filesystem::exists(std::filesystem::symlink_status(name, error)); ++i)
    name = cat(aside, "-", i);
  std::filesystem::rename(path, name, error);
  return error ? std::string() : name;
}

}  // namespace

Run::Run(const Parts& parts, Options options)
    : parts_(parts),
      options_(std::move(options)),
      trainer_(parts.context, parts.model, parts.data),
      thread_choice_(parts.model.training.threads == TrainConfig::kAutoThreads
                         ? std::optional<ThreadChoice>(std::in_place, parts.context.most_threads(), machine_load())
                         : std::nullopt),
      said_threads_(parts.context.threads()),
      report_(report_options(parts, options_, trainer_), parts.log) {}

void Run::begin() {
  store_text_paths(parts_.folder.path(), parts_.model.state.text.paths);  // first: a checkpoint needs its text
  save_checkpoint(parts_.folder.path(), parts_.model, trainer_.optimizer());
  store_config();
  remember_save();
  if (options_.begun) options_.begun();
  report_.event(StartEvent{parts_.model.params->count(), parts_.context.threads(), parts_.model.training});
}

// Remembers the checkpoint just saved or resumed from. Its file is kept open, to tell it from one that another process
// may put there.
void Run::remember_save() {
  saved_step_ = trainer_.steps_done();
  checkpoint_ = Descriptor(::open(parts_.folder.file(kLastFile).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

void Run::store_config() {
  write_file_atomically(parts_.folder.file(kConfigFile), config_to_json(parts_.model.training));
  store_text_paths(parts_.folder.path(), parts_.model.state.text.paths);
}

void Run::resume(bool changed) {
  load_optimizer(parts_.folder.path(), parts_.model, trainer_.optimizer());
  if (options_.begun) options_.begun();
  ModelState& state = parts_.model.state;
  if (state.rule != rule()) state.loss = ModelState::kUnknown;  // measured again, if an evaluation is due
  remember_save();
  remove_other_states(parts_.folder.path(), saved_step_);  // left by a process that was killed while it saved
  report_.forget_after(saved_step_, !evaluation_is_missing());
  changed_ = changed;
  if (!changed) attempt("the configuration", [&] { store_config(); });
  failure_.clear();  // only failures to save a model count at the run's end
  recall_best();
  report_.event(ResumeEvent{saved_step_, parts_.context.threads(), parts_.model.training});
}

// Saves a changed configuration after the first step, so that it lasts whenever the run ends.
void Run::keep_changes() {
  if (!changed_) return;
  changed_ = false;
  restore_folder();
  attempt("the configuration", [&] { store_config(); });
  failure_.clear();
  save_last();
}

LossRule Run::rule() const {
  return {.eval_tokens = parts_.model.training.eval_tokens, .precision = parts_.context.precision()};
}

// Takes over the best model in the folder. A file that cannot be read, or that belongs to another run, is renamed and
// not removed, as it may be of use. The run's newest model then takes its place, until a better one comes.
void Run::recall_best() {
  ModelState& state = parts_.model.state;
  const std::string path = parts_.folder.file(kModelFile);
  std::error_code unknown;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, unknown))) {
    if (std::isnan(state.best_loss)) return;
    state.best_loss = ModelState::kUnknown;
    const bool replaced = keep_if_best();
    parts_.log.warn(cat(printable(path), ": expected the best model, got none of that name",
                        replaced ? "; the newest model takes its place" : ""));
    return;
  }
  try {
    take_over_best(path);
  } catch (const Error& error) {
    const std::string aside = put_aside(path);
    state.best_loss = ModelState::kUnknown;
    const bool replaced = !aside.empty() && keep_if_best();
    parts_.log.warn(cat(error.what(), aside.empty() ? "" : cat("; it is kept as ", printable(aside)),
                        replaced ? ", the newest model takes its place" : ""));
  }
}

// The loss in the best model's file counts, not the one that the checkpoint remembers: the file may be newer than the
// checkpoint, if the process ended between saving the two, or older, if somebody has restored it.
void Run::take_over_best(const std::string& path) {
  TRIL_CHECK(!std::filesystem::is_directory(path), printable(path), "the best model", "a folder");
  Model best = load_model(path);
  for (const Field& field : fields()) {
    const std::string ours = field_text(parts_.model.training, field), theirs = field_text(best.training, field);
    TRIL_CHECK(!field.part_of_model || ours == theirs, printable(path),
               cat("the run's best model, of ", field.name, " ", ours), cat("one of ", theirs));
  }
  TRIL_CHECK(best.tokenizer == parts_.model.tokenizer, printable(path), "the run's best model",
             "one of other characters");
  ModelState& state = parts_.model.state;
  const TextIdentity &ours = state.text, &theirs = best.state.text;
  state.best_loss = best.state.loss;
  state.best_step = best.state.step;
  const bool as_now = best.state.rule == rule() && theirs.bytes == ours.bytes && theirs.crc32 == ours.crc32;
  const bool measured_otherwise = !as_now && !std::isnan(best.state.loss);
  if ((measured_otherwise || !best.as_written) && parts_.data.val_size() > 0) other_best_.emplace(std::move(best));
}

// Evaluates the best model again, if its loss was measured by another rule, or before another program changed its
// weights. Such a loss cannot be compared: if it is low, no better model would ever replace the best one. Returns false
// if stopped; the file then still has the old rule, so the next process begins here again.
bool Run::measure_best_again() {
  if (!other_best_) return true;
  Model& best = *other_best_;
  report_.evaluating(best.state.step);
  if (parts_.context.precision() == DType::bf16) best.params->keep_shadow();
  const TrainConfig& config = parts_.model.training;
  const auto loss =
      evaluate(parts_.context, *best.lm, parts_.data.validation(config.context, config.eval_tokens), options_.stopped);
  if (!loss) return false;
  const double before = best.state.loss;
  best.state.loss = best.state.best_loss = std::isfinite(*loss) ? *loss : ModelState::kUnknown;
  best.state.best_step = best.state.step;
  best.state.rule = rule();
  best.state.text = parts_.model.state.text;
  restore_folder();
  parts_.model.state.best_loss = best.state.loss;
  parts_.model.state.best_step = best.state.step;
  attempt("the best model", [&] { save_model(parts_.folder.file(kModelFile), best); });
  failure_.clear();  // the file is there with its old loss, so the next process measures it again
  parts_.log.note(fmt::format("the best model, of step {}: validation loss {:.4f} as it is measured from here on{}",
                              best.state.step, *loss, std::isnan(before) ? "" : fmt::format(", was {:.4f}", before)));
  BestEvent told{.step = best.state.step};
  if (std::isfinite(*loss)) told.loss = *loss;
  if (!std::isnan(before)) told.was = before;
  report_.event(told);
  other_best_.reset();
  return true;
}

// Makes and locks the run's folder again if somebody has removed it, moved it, or put an empty one in its place. If
// that cannot be done, in_the_way_ says why. Returns true if the run goes on in a new or emptied folder.
bool Run::restore_folder() {
  std::error_code unknown;
  const bool same = parts_.folder.in_place(), none = !std::filesystem::exists(parts_.folder.path(), unknown);
  const std::string last = parts_.folder.file(kLastFile);
  const bool emptied = same && checkpoint_.get() >= 0 && !std::filesystem::exists(last, unknown);
  in_the_way_.clear();
  try {
    parts_.folder.hold();
    const bool other = same && checkpoint_.get() >= 0 && std::filesystem::is_regular_file(last, unknown) &&
                       !is_file_at(checkpoint_, last);
    TRIL_CHECK(!other, printable(last), "the checkpoint that this run saved", "another", "move it away");
  } catch (const Error& error) { in_the_way_ = error.what(); }
  if ((same && !emptied) || !in_the_way_.empty()) return false;
  parts_.log.warn(cat(printable(parts_.folder.path()), ": expected the run's folder, got ",
                      emptied ? "one without its checkpoint; all is saved anew"
                      : none  ? "none; it is made anew"
                              : "another; the run goes on in it"));
  report_.reopen();
  parts_.model.state.best_loss = ModelState::kUnknown;  // the best model is gone with the folder
  const std::string failure = failure_;
  attempt("the configuration", [&] { store_config(); });
  failure_ = failure;
  return true;
}

// Saves, and returns whether the new file is in place. A save that fails is a warning and leaves what was there before;
// the end of the run is an error if the latest save failed.
bool Run::attempt(const std::string& what, const std::function<void()>& save) {
  try {
    if (!in_the_way_.empty()) throw Error(in_the_way_);
    save();
    return true;
  } catch (const std::exception& error) {
    const auto* const write = dynamic_cast<const WriteError*>(&error);
    if (write != nullptr && write->committed()) {
      parts_.log.warn(error.what());
      return true;
    }
    failure_ = error.what();
    parts_.log.warn(cat(what, " was not saved: ", error.what()));
    return false;
  }
}

void Run::save_last() {
  const bool anew = restore_folder();
  expect_finite(*parts_.model.params);
  parts_.model.state.step = trainer_.steps_done();
  if (anew) keep_if_best();
  if (attempt("the checkpoint", [&] { save_checkpoint(parts_.folder.path(), parts_.model, trainer_.optimizer()); }))
    remember_save();
}

// Saves the model as the best if it is, and returns whether it did. Without a validation part the newest model counts
// as the best.
bool Run::keep_if_best() {
  ModelState& state = parts_.model.state;
  if (!std::isnan(state.loss) && state.loss >= state.best_loss) return false;
  const ModelState before = state;
  state.best_loss = state.loss;
  state.best_step = state.step;
  if (attempt("the best model", [&] { save_model(parts_.folder.file(kModelFile), parts_.model); })) return true;
  state.best_loss = before.best_loss;  // so that a later model that beats the stored one is saved
  state.best_step = before.best_step;
  return false;
}

// Returns false if stopped before the evaluation's end.
bool Run::evaluate_and_save() {
  restore_folder();
  ModelState& state = parts_.model.state;
  state.step = trainer_.steps_done();
  failure_.clear();
  expect_finite(*parts_.model.params);
  if (parts_.data.val_size() > 0) {
    report_.evaluating(state.step);
    const TrainConfig& config = parts_.model.training;
    const auto loss = evaluate(parts_.context, *parts_.model.lm,
                               parts_.data.validation(config.context, config.eval_tokens), options_.stopped);
    if (!loss) return false;
    if (!std::isfinite(*loss)) throw NonFiniteError(cat("validation loss: expected a finite one, got ", *loss));
    state.loss = *loss;
    state.rule = rule();
    restore_folder();
  }
  keep_if_best();
  std::optional<std::string> text;
  if (parts_.model.training.sample_length > 0) {
    bool stopped = false;
    try {
      text = sample();
      stopped = !text;
    } catch (const NonFiniteError&) { throw; } catch (const std::exception& error) {  // no reason to end the run
      parts_.log.warn(cat("no sample at step ", state.step, ": ", error.what()));
    }
    if (stopped) {
      state.loss = ModelState::kUnknown;
      return false;
    }
  }
  // Report before saving: after a kill in between, the evaluation is reported again. In the other order the report
  // would be lost.
  report_.evaluation(state);
  if (text) report_.sample(state.step, *text);
  save_last();
  return true;
}

// A short text by the model as it is now, another at each step; none if stopped. Without a validation part a missing
// text would not be noticed on resuming, so then a stop does not interrupt it.
std::optional<std::string> Run::sample() const {
  constexpr double kTemperature = 0.8;
  const Model& model = parts_.model;
  Decoder decoder(*model.lm);
  Sampler sampler({.temperature = kTemperature, .seed = static_cast<uint64_t>(model.training.seed)},
                  model.lm->vocabulary());
  const int32_t start = model.tokenizer.start_token();
  std::string text;
  bool whole = true;
  write_text(decoder, sampler, model.tokenizer, {&start, 1},
             {.length = model.training.sample_length, .stop = {}, .stream = static_cast<uint32_t>(model.state.step)},
             [&](std::string_view piece) {
               text += piece;
               whole = parts_.data.val_size() == 0 || !options_.stopped();
               return whole;
             });
  return whole ? std::optional(text) : std::nullopt;
}

bool Run::evaluation_is_due() const {
  const int64_t step = trainer_.steps_done();
  const TrainConfig& config = parts_.model.training;
  return step > 0 && (step % config.eval_every == 0 || step == config.steps) && std::isnan(parts_.model.state.loss);
}

// Whether an evaluation was due when the run was stopped; then it is done on resuming.
bool Run::evaluation_is_missing() const { return parts_.data.val_size() > 0 && evaluation_is_due(); }

// Writes every change of the number of threads to log.jsonl, but tells the user at most once a minute.
void Run::choose_threads(double step_seconds) {
  constexpr std::chrono::minutes kQuiet{1};
  if (!thread_choice_) return;
  const bool changed = thread_choice_->took(step_seconds);
  const int chosen = thread_choice_->chosen();
  if (changed) report_.event(ThreadsEvent{trainer_.steps_done(), chosen});
  const auto now = std::chrono::steady_clock::now();
  if (chosen != said_threads_ && now >= say_threads_) {
    parts_.log.note(fmt::format("threads: {} from here on, the fastest of those timed ({:.2f} ms a step)", chosen,
                                1e3 * thread_choice_->chosen_seconds()));
    said_threads_ = chosen;
    say_threads_ = now + kQuiet;
  }
  parts_.context.use_threads(thread_choice_->threads());
}

bool Run::go_on() {
  const TrainConfig& config = parts_.model.training;
  if (!measure_best_again()) return false;
  if (evaluation_is_missing() && !evaluate_and_save()) return false;
  while (trainer_.steps_done() < config.steps) {
    const auto begin = std::chrono::steady_clock::now();
    const auto result = trainer_.step(options_.stopped);
    if (!result) return false;
    parts_.model.state.loss = ModelState::kUnknown;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    keep_changes();
    report_.step(*result, seconds);
    choose_threads(seconds);
    if (evaluation_is_due() && !evaluate_and_save()) return false;
  }
  return true;
}

// Tries to save the steps done when an error, such as lack of memory, ends the run.
void Run::save_what_is_learned() noexcept {
  try {
    parts_.log.clear_live();
    if (saved_step_ == trainer_.steps_done()) return;
    expect_finite(*parts_.model.params);
    parts_.model.state.loss = ModelState::kUnknown;  // its evaluation is done on resuming
    parts_.model.state.step = trainer_.steps_done();
    (void)restore_folder();
    if (!in_the_way_.empty()) return;
    try {
      save_checkpoint(parts_.folder.path(), parts_.model, trainer_.optimizer());
    } catch (const WriteError& error) {
      if (!error.committed()) throw;
    }
    remember_save();
    if (parts_.data.val_size() == 0) keep_if_best();
  } catch (const std::exception&) {}  // the caller reports what ended the run, and which step is saved
}

bool Run::train() {
  bool done = false;
  try {
    done = go_on();
    parts_.log.clear_live();
    keep_changes();
    if (saved_step_ != trainer_.steps_done() || !is_file_at(checkpoint_, parts_.folder.file(kLastFile))) {
      failure_.clear();
      save_last();
      if (parts_.data.val_size() == 0) keep_if_best();
    }
  } catch (const NonFiniteError& error) {
    report_.event(StopEvent{trainer_.steps_done(), "not finite"});
    throw Error(cat(error.what(), "; the last good checkpoint is that of step ", saved_step_, ", ",
                    printable(parts_.folder.file(kLastFile))));
  } catch (const std::bad_alloc&) {
    save_what_is_learned();
    throw;
  } catch (const std::exception& error) {
    save_what_is_learned();
    throw Error(cat(error.what(), "; step ", saved_step_, " is saved, --resume goes on from there"));
  }
  report_.event(StopEvent{trainer_.steps_done(), done ? "done" : "signal"});
  TRIL_CHECK(failure_.empty(), printable(parts_.folder.path()), "the run's last save to work", failure_);
  return done;
}

}  // namespace tril
