// tril eval: a model's loss on a text.
#include "train/evaluate.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "train/cli/command.h"
#include "train/cli/flags.h"
#include "train/cli/json_output.h"
#include "train/cli/output.h"
#include "train/cli/shell.h"
#include "train/corpus.h"
#include "train/crc32.h"
#include "train/log.h"
#include "train/report.h"
#include "train/threads.h"

namespace tril::cli {
namespace {

Flags eval_flags() {
  return Flags(
      {.name = "eval",
       .usage = "RUN [FILE | FOLDER | -]... [flags]",
       .about = "Measures the loss of a model, in a run's folder or a file, on a text, or on the validation "
                "part of the text that it was trained on. Every character but the first is predicted once, from "
                "those before it in its window.",
       .most_arguments = 1'000'000,
       .examples = "Examples:\n"
                   "  tril eval runs/stories\n"
                   "  tril eval runs/stories other.txt --json\n"
                   "  tril eval runs/book moved/book.txt --validation\n"},
      {{.name = "validation",
        .help =
            "Of the text given, which is the one that the model was trained on, measure the validation part alone."},
       {.name = "json", .help = "Print one JSON object: loss, bits_per_char, chars."},
       {.name = "threads",
        .help = "Threads to compute with; 0 for as many as this process may use.",
        .value = "N",
        .fallback = "0"}});
}

struct Result {
  double loss = 0;
  int64_t targets = 0;
  std::string text;                     // what it was measured on
  std::optional<double> best_possible;  // of any model
};

double measure(Context& context, const Model& model, const EvalWindows& windows) {
  const double loss = *evaluate(context, *model.gpt, windows, [] { return false; });
  TRIL_CHECK(std::isfinite(loss), model.where, "a finite loss", cat(loss), "the weights are damaged, or too large");
  return loss;
}

Result on_texts(Context& context, const Model& model, const std::vector<std::string>& paths, Log& log) {
  Corpus corpus = load_corpus(paths, model.training.tokens);
  for (const std::string& line : corpus.text.warnings) log.warn(line);
  const TextIdentity& trained_on = model.state.text;
  Crc32 crc;
  crc.add(corpus.text.bytes.data(), corpus.text.bytes.size());
  if (model.training.val_fraction > 0 && static_cast<int64_t>(corpus.text.bytes.size()) == trained_on.bytes &&
      crc.value() == trained_on.crc32)
    log.note("this is the text that the model was trained on; --validation measures its validation part alone");
  const std::string name = corpus.text.name;
  const Tokens tokens(std::move(corpus.text.bytes), model.tokenizer, name);
  const EvalWindows windows(tokens, 0, tokens.size(), model.config.context);
  return {measure(context, model, windows), windows.targets(), name, {}};
}

Result on_validation_part(Context& context, const Model& model, const std::vector<std::string>& paths) {
  TRIL_CHECK(model.state.known, model.where, "a model that tells what text it was trained on", "one that does not",
             "give a text to measure on, without --validation");
  Corpus corpus =
      paths.empty() ? find_corpus(model.state.text, model.training.tokens, cat(program, " eval RUN TEXT --validation"))
                    : load_corpus(paths, model.training.tokens);
  const std::string name = corpus.text.name;
  const Dataset data(std::move(corpus.text), model.tokenizer, model.training.val_fraction, model.config.context);
  expect_same_text(model.state.text, data, name);
  TRIL_CHECK(data.val_size() > 0, model.where, "a validation part of the text it was trained on", "none",
             "give a text to measure on");
  const EvalWindows windows = data.validation(model.config.context);
  return {measure(context, model, windows), windows.targets(), cat("the validation part of ", name),
          best_possible_loss(corpus.stories, data, model.config.context)};
}

std::string as_json(const Result& result) {
  nlohmann::ordered_json json;
  json["loss"] = result.loss;
  json["bits_per_char"] = result.loss / std::numbers::ln2;
  json["chars"] = result.targets;
  if (result.best_possible) json["best_possible"] = *result.best_possible;
  return json_text(json) + "\n";
}

std::string as_text(const Result& result, TokenKind tokens) {
  const char* const unit = tokens == TokenKind::kChar ? "character" : "byte";
  std::string text = cat("loss ", fixed(result.loss, 4), " nats, ", fixed(result.loss / std::numbers::ln2, 4),
                         " bits a ", unit, ", over ", result.targets, " ", unit, "s of ", result.text);
  if (result.best_possible) text += cat("; the best possible loss is ", fixed(*result.best_possible, 4), " nats");
  return text + "\n";
}

}  // namespace

int run_eval(int argc, const char* const* argv) {
  Flags flags = eval_flags();
  if (!flags.parse(argc, argv)) return 0;
  const std::vector<std::string>& arguments = flags.arguments();
  if (arguments.empty()) fail_usage("tril eval", "a run's folder or a model file", "none");
  const auto threads = static_cast<int>(flags.integer("threads", 0, 1024));
  Log log;
  const Model model = load_model(arguments[0]);
  for (const std::string& line : model.warnings) log.warn(line);
  Context context({.threads = threads > 0 ? threads : default_threads()});
  const std::vector<std::string> paths(arguments.begin() + 1, arguments.end());
  const Result result = paths.empty() || flags.on("validation") ? on_validation_part(context, model, paths)
                                                                : on_texts(context, model, paths, log);
  write_output(flags.on("json") ? as_json(result) : as_text(result, model.training.tokens));
  return 0;
}

}  // namespace tril::cli
