// tril train: from a text and flags to a run.
#include <spdlog/fmt/fmt.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/machine/onednn.h"
#include "train/base/file_kind.h"
#include "train/base/log.h"
#include "train/base/signals.h"
#include "train/base/threads.h"
#include "train/base/utf8.h"
#include "train/cli/command.h"
#include "train/cli/field_flags.h"
#include "train/cli/flags.h"
#include "train/cli/output.h"
#include "train/cli/shell.h"
#include "train/data/corpus.h"
#include "train/model/precision.h"
#include "train/run/memory.h"
#include "train/run/run.h"

namespace tril::cli {
namespace {

constexpr const char* kAbout =
    "Trains a character model on a text: files, folders or - for standard input, UTF-8, with no preparation. "
    "Without a text it trains on built-in stories. A folder stands for the text files below it; each file counts once. "
    "Between two files comes a line feed where the first does not end in a new line, or nothing where none of them "
    "has a line feed. Without --out the run's folder is runs/NAME of the text, "
    "or NAME-2, NAME-3, … where there is one.";
constexpr const char* kExamples =
    "Examples:\n"
    "  tril train book.txt --preset small\n"
    "  tril train notes/ --out runs/notes --steps 500\n"
    "  tril train --resume runs/notes --steps 1000\n";

Flags train_flags() {
  std::vector<Flag> flags = {
      {.name = "out", .help = "The run's folder, new or empty.", .value = "RUN"},
      {.name = "resume",
       .help =
           "Go on with the run in this folder, as if it had never stopped; its text, if it has moved, is given again.",
       .value = "RUN"},
      {.name = "all-files",
       .help = "Take every file of a folder, not only those that are text, and each as often as it is named or linked "
               "to."},
      {.name = "preset",
       .help = "nanoGPT's character model for a CPU, small, whose values are the defaults below, or for a GPU, baby: "
               "6 layers, 6 heads, width 384, context 256, dropout 0.2, batch 64, 5000 steps.",
       .value = "NAME",
       .fallback = "small"},
      {.name = "config",
       .help = "Take values, but no text, from this JSON file or the config.json of this run; flags win.",
       .value = "FILE"},
      {.name = "quiet", .help = "Print warnings and the last line only."},
  };
  for (const Field& field : fields()) add_field_flag(flags, field);
  constexpr size_t kMostTexts = 1'000'000;
  return Flags({.name = "train",
                .usage = "[FILE | FOLDER | -]... [flags]",
                .about = kAbout,
                .most_arguments = kMostTexts,
                .examples = kExamples},
               std::move(flags));
}

// Messages about a run, kept until nothing can be refused any more, so that nothing is announced that does not happen.
class Announcements {
 public:
  void note(std::string line) { lines_.push_back({std::move(line), false}); }
  void warn(std::string line) { lines_.push_back({std::move(line), true}); }
  void say(Log& log) const {
    for (const Line& line : lines_) line.warning ? log.warn(line.text) : log.note(line.text);
  }

 private:
  struct Line {
    std::string text;
    bool warning;
  };
  std::vector<Line> lines_;
};

TrainConfig new_config(const Flags& flags) {
  TrainConfig config = preset(flags.text("preset"));
  if (flags.given("config")) {
    std::string path = flags.text("config");
    std::error_code unreadable;
    if (std::filesystem::is_directory(path, unreadable)) path = cat(path, "/", kConfigFile);
    constexpr int64_t kLongest = 1 << 20;
    config =
        config_from_json(read_json_file(path, kLongest, "a configuration in JSON, or a run"), printable(path), config);
  }
  for (const Field& field : fields())
    if (const auto text = given_text(flags, field)) set_field(config, field, *text);
  check_config(config);
  return config;
}

// A run to resume keeps its configuration, but flags may change some fields that are not part of the model.
void change_config(const Flags& flags, TrainConfig& config, int64_t done, Announcements& said) {
  for (const char* other : {"out", "preset", "config", "all-files"})
    if (flags.given(other))
      fail_usage(cat("--", other), "not to be given with --resume", printable(flags.text(other), 60),
                 "the run has its own folder, text and configuration; single values can be changed by their flags");
  for (const Field& field : fields()) {
    const auto text = given_text(flags, field);
    if (!text) continue;
    const std::string before = field_text(config, field);
    set_field(config, field, *text);
    const std::string after = field_text(config, field);
    if (before == after) continue;
    if (config.steps < done) fail_usage("steps", cat("at least ", done, ", which are done"), cat(config.steps));
    if (field.part_of_model)
      fail_usage(field.name, cat(before, ", as the run's model has it"), after, "start a new run for another");
    const bool bends = std::string_view(field.name) == "steps" && config.min_lr != config.lr;
    said.note(cat(field.name, ": ", after, " from here on, was ", before,
                  bends ? "; the learning rate now falls over that many" : ""));
  }
  check_config(config);
}

int choose_threads(const TrainConfig& config, Announcements& said) {
  const int fitting = default_threads();
  if (config.threads <= 0) return fitting;
  const int available = processors();
  if (config.threads > available)
    said.warn(cat("threads: ", config.threads, " asked for, but this process may run on ", available,
                  available == 1 ? " processor" : " processors", "; training will be slow"));
  return static_cast<int>(config.threads);
}

void report_threads(int asked, const Context& context, Announcements& said) {
  if (context.threads() < asked)
    said.warn(cat("threads: ", asked, " asked for, but the system grants ", context.threads()));
}

DType report_precision(const TrainConfig& config, Announcements& said) {
  const ChosenPrecision chosen = choose_precision(config.dtype);
  if (!chosen.warning.empty()) said.warn(chosen.warning);
  return chosen.dtype;
}

void report_text(const Corpus& corpus, Log& log) {
  for (const std::string& line : corpus.text.notes) log.note(line);
  for (const std::string& line : corpus.text.warnings) log.warn(line);
}

void report_warmup(const TrainConfig& config, Log& log) {
  const int64_t rise = Schedule{config.lr, config.min_lr, config.warmup, config.steps}.rise();
  if (rise < config.warmup)
    log.note(cat("warmup: ", rise, rise == 1 ? " step" : " steps", " in place of ", config.warmup,
                 ", as it takes at most half of all"));
}

void report_run(const Model& model, const Context& context, const Dataset& data, const RunFolder& folder,
                const std::string& text_name, Log& log) {
  const TrainConfig& config = model.training;
  const char* const unit = config.tokens == TokenKind::kChar ? "characters" : "bytes";
  const bool counts = config.tokens == TokenKind::kChar;  // a vocabulary of bytes always has all of them
  log.note(cat("text   ", text_name, ": ", data.tokens().size(), " ", unit,
               counts ? cat(", ", model.tokenizer.size(), " of them different") : "", "; ", data.train_size(),
               " to train on, ", data.val_size(), " to validate with"));
  log.note(cat("model  ", config.layers, config.layers == 1 ? " layer, " : " layers, ", config.heads, " heads, ",
               config.width, " wide, context ", config.context, ": ", model.params->count(), " parameters"));
  log.note(cat("run    ", printable(folder.path()), ": ", config.steps, " steps of ", config.batch * config.accumulate,
               " x ", config.context, " ", unit, ", ", name_of(context.precision()), ", ", context.threads(),
               context.threads() == 1 ? " thread" : " threads"));
  report_warmup(config, log);
  if (!folder.locked())
    log.warn("the file system knows no locks: make sure that no other process trains in the folder");
  if (model.tokenizer.size() == 1) log.warn("the text has one distinct character: there is nothing to learn");
  if (data.val_size() == 0) log.note("no validation part: the newest model is kept in place of the best");
}

constexpr const char* kStopping =
    "stopping: the batch that is under way comes first; another signal ends at once, unsaved\n";

// The one line of results: where the model lies and how to sample from it.
std::string last_line(const Model& model, const RunFolder& folder) {
  const ModelState& state = model.state;
  const std::string best = folder.file(kModelFile), last = folder.file(kLastFile);
  const bool has_best = std::filesystem::exists(best);
  const std::string loss = has_best && !std::isnan(state.best_loss)
                               ? fmt::format("validation loss {:.4f} at step {}, ", state.best_loss, state.best_step)
                               : cat("step ", state.step, ", ");
  return cat("model: ", printable(has_best ? best : last), " (", loss, "sample from it: ", program, " sample ",
             shell_quoted(folder.path()), ")\n");
}

int run_to_the_end(Run& run, const Model& model, const RunFolder& folder, bool quiet, Log& log) {
  const bool done = run.train();
  const auto& names = model.state.text.names;
  const bool piped = std::find(names.begin(), names.end(), "-") != names.end();
  if (!done) {
    const std::string stopped =
        cat("stopped at step ", model.state.step, " of ", model.training.steps, " and saved; to go on: ", program,
            " train --resume ", shell_quoted(folder.path()), piped ? " - < TEXT" : "");
    quiet ? log.warn(stopped) : log.note(stopped);
  }
  constexpr int kSignalBase = 128;
  try {
    write_output(last_line(model, folder));
  } catch (const OutputError&) {
    if (done) throw;  // after a signal the terminal may be gone, which is no error
  }
  return done ? 0 : kSignalBase + stop_signal();
}

// What a run begins with, new or resumed.
struct Beginning {
  TrainConfig config;
  Corpus corpus;
  Tokenizer tokenizer;
  Split split;
  Announcements said;
};

// What a new run and a resumed one have in common, once the text is read. They differ in where model and folder come
// from and in how the run begins: model_of(data) -> Model, folder_of(corpus) -> RunFolder&, begin(run).
template <class ModelOf, class FolderOf, class Begin>
int train(Beginning from, bool quiet, Log& log, ModelOf&& model_of, FolderOf&& folder_of, Begin&& begin) {
  auto& [config, corpus, tokenizer, split, said] = from;
  report_text(corpus, log);
  const std::string text_name = corpus.text.name;
  const Dataset data(std::move(corpus.text), tokenizer, split, config.context);
  const auto best_possible = best_possible_loss(corpus.stories, data, config.context, config.eval_tokens);
  corpus.stories.reset();
  expect_memory(config, tokenizer.size(), choose_precision(config.dtype).dtype);

  const int threads = choose_threads(config, said);
  Context context(
      {.threads = threads, .seed = static_cast<uint64_t>(config.seed), .precision = report_precision(config, said)});
  report_threads(threads, context, said);
  Model model = model_of(data);
  model.state.text = identity_of(corpus, data, split);
  model.state.isa = cpu_isa();

  RunFolder& folder = folder_of(corpus);
  Run run({context, model, data, folder, log}, {best_possible, [] { return stop_signal() != 0; },
                                                [&, &to_say = said] {
                                                  to_say.say(log);
                                                  report_run(model, context, data, folder, text_name, log);
                                                }});
  catch_stop_signals(quiet ? nullptr : kStopping);
  begin(run);
  return run_to_the_end(run, model, folder, quiet, log);
}

int start(const Flags& flags, Log& log) {
  if (flags.given("out") && flags.text("out").empty()) fail_usage("--out", "a run's folder", "an empty name");
  const TrainConfig config = new_config(flags);
  Corpus corpus = load_corpus(flags.arguments(), {.tokens = config.tokens, .all_files = flags.on("all-files")});
  Tokenizer tokenizer = Tokenizer::make(config.tokens, corpus.text.bytes, corpus.text.name);
  std::optional<RunFolder> folder;
  return train(
      {config, std::move(corpus), tokenizer, config.val_fraction, {}}, flags.on("quiet"), log,
      [&](const Dataset&) { return make_model(config, tokenizer); },
      [&](const Corpus& text) -> RunFolder& {
        return folder.emplace(flags.given("out") ? flags.text("out") : make_run_folder(run_name(text.paths)),
                              RunFolder::For::fresh);
      },
      [](Run& run) { run.begin(); });
}

int resume(const Flags& flags, Log& log) {
  if (flags.text("resume").empty()) fail_usage("--resume", "a run's folder", "an empty name");
  RunFolder folder(flags.text("resume"), RunFolder::For::resume);
  Model model = load_checkpoint(folder.path());
  for (const std::string& line : model.warnings) log.warn(line);
  const TrainConfig before = model.training;
  TrainConfig config = before;
  Announcements said;
  change_config(flags, config, model.state.step, said);
  if (config != before) model = with_training(std::move(model), config);
  if (const std::string isa = cpu_isa(); isa != model.state.isa)
    said.note(cat("trained so far with ", printable(model.state.isa), ", now with ", isa,
                  ": sums may be rounded differently from here on"));

  const std::string give_again = cat(program, " train --resume ", shell_quoted(folder.path()), " TEXT");
  Corpus corpus = flags.arguments().empty()
                      ? find_corpus(model.state.text, training_rules(model), folder.path(), give_again)
                      : load_corpus(flags.arguments(), training_rules(model));
  const std::string text_name = corpus.text.name;
  const int64_t done = model.state.step;
  return train(
      {config, std::move(corpus), model.tokenizer, training_split(model), std::move(said)}, flags.on("quiet"), log,
      [&](const Dataset& data) {
        expect_same_text(model.state.text, data, text_name);
        return std::move(model);
      },
      [&](const Corpus&) -> RunFolder& { return folder; },
      [&](Run& run) {
        run.resume(config != before);
        if (done >= config.steps)
          log.note(cat("step ", done, " of ", config.steps, ": all done; for more, give a larger --steps"));
      });
}

}  // namespace

int run_train(int argc, const char* const* argv) {
  Flags flags = train_flags();
  if (!flags.parse(argc, argv)) return 0;
  Log log(flags.on("quiet"));
  return flags.given("resume") ? resume(flags, log) : start(flags, log);
}

}  // namespace tril::cli
