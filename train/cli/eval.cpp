// tril eval: a model's loss on a text.
#include "train/base/json_text.h"
#include "train/run/evaluate.h"

#include <spdlog/fmt/fmt.h>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "train/base/crc32.h"
#include "train/base/log.h"
#include "train/base/threads.h"
#include "train/cli/command.h"
#include "train/cli/flags.h"
#include "train/cli/output.h"
#include "train/cli/shell.h"
#include "train/data/corpus.h"
#include "train/run/report.h"

namespace tril::cli {
namespace {

Flags eval_flags() {
  return Flags(
      {.name = "eval",
       .usage = "RUN [FILE | FOLDER | -]... [flags]",
       .about = "Measures the loss of a model, in a run's folder or a file, on a text, or on the validation "
                "part of the text that it was trained on. Every character (or byte, as the model has it) but the first "
                "is predicted once, from those before it in its window. A folder stands for the text files below it; "
                "each file counts once. Between two files comes a line feed where the first does not end in a new "
                "line, or nothing where the model knows no line feed.",
       .most_arguments = 1'000'000,
       .examples = "Examples:\n"
                   "  tril eval runs/stories\n"
                   "  tril eval runs/stories other.txt --json\n"
                   "  tril eval runs/book moved/book.txt --validation\n"},
      {{.name = "validation",
        .help =
            "Of the text given, which is the one that the model was trained on, measure the validation part alone."},
       {.name = "all-files",
        .help = "Take every file of a folder, not only those that are text, and each as often as it is named or "
                "linked to."},
       {.name = "json",
        .help = "Print one JSON object: loss, in nats a character or byte, bits_per_char, chars, bits_per_byte, "
                "bytes. Those of characters are left out where the text is no UTF-8."},
       {.name = "threads",
        .help = "Threads to compute with; 0 for as many as this process may use.",
        .value = "N",
        .fallback = "0"}});
}

struct Result {
  double loss = 0;
  TextAmount amount;                    // of what was predicted
  std::string text;                     // what it was measured on
  std::optional<double> best_possible;  // of any model
};

double measure(Context& context, const Model& model, const EvalWindows& windows) {
  const double loss = *evaluate(context, *model.lm, windows, [] { return false; });
  TRIL_CHECK(std::isfinite(loss), model.where, "a finite loss", cat(loss), "the weights are damaged, or too large");
  return loss;
}

Result on_texts(Context& context, const Model& model, const std::vector<std::string>& paths, bool all_files, Log& log) {
  Corpus corpus = load_corpus(paths, reading_rules(model, all_files));
  for (const std::string& line : corpus.text.notes) log.note(line);
  for (const std::string& line : corpus.text.warnings) log.warn(line);
  const TextIdentity& trained_on = model.state.text;
  Crc32 crc;
  crc.add(corpus.text.bytes.data(), corpus.text.bytes.size());
  if (model.training.val_fraction > 0 && static_cast<int64_t>(corpus.text.bytes.size()) == trained_on.bytes &&
      crc.value() == trained_on.crc32)
    log.note("this is the text that the model was trained on; --validation measures its validation part alone");
  const std::string name = corpus.text.name;
  const Tokens tokens(std::move(corpus.text.bytes), model.tokenizer, name);
  const EvalWindows windows(tokens, 0, tokens.size(), model.lm->context());
  return {measure(context, model, windows), amount_of(tokens, model.tokenizer, 1, tokens.size()), name, {}};
}

Result on_validation_part(Context& context, const Model& model, const std::string& folder,
                          const std::vector<std::string>& paths) {
  TRIL_CHECK(model.state.known, model.where, "a model that tells what text it was trained on", "one that does not",
             "give a text to measure on, without --validation");
  Corpus corpus = paths.empty() ? find_corpus(model.state.text, training_rules(model), folder,
                                              cat(program, " eval RUN TEXT --validation"))
                                : load_corpus(paths, training_rules(model));
  const std::string name = corpus.text.name;
  const Dataset data(std::move(corpus.text), model.tokenizer, training_split(model), model.lm->context());
  expect_same_text(model.state.text, data, name);
  TRIL_CHECK(data.val_size() > 0, model.where, "a validation part of the text it was trained on", "none",
             "give a text to measure on");
  const EvalWindows windows = data.validation(model.lm->context());
  return {measure(context, model, windows),
          amount_of(data.tokens(), model.tokenizer, data.train_size() + 1, data.tokens().size()),
          cat("the validation part of ", name), best_possible_loss(corpus.stories, data, model.lm->context())};
}

// What was measured, in characters and in bytes: the model's own unit first.
struct Unit {
  const char *name, *key, *count_key;
  int64_t count;
  double bits;  // for each
};
std::vector<Unit> units_of(const Result& result, TokenKind tokens) {
  const bool chars = tokens == TokenKind::kChar;
  const TextAmount& amount = result.amount;
  const double bits = result.loss / std::numbers::ln2 * static_cast<double>(chars ? *amount.chars : amount.bytes);
  std::vector<Unit> units;
  if (amount.chars.value_or(0) > 0)
    units.push_back({"character", "bits_per_char", "chars", *amount.chars, bits / static_cast<double>(*amount.chars)});
  const Unit bytes{"byte", "bits_per_byte", "bytes", amount.bytes, bits / static_cast<double>(amount.bytes)};
  units.insert(chars ? units.end() : units.begin(), bytes);
  return units;
}

std::string as_json(const Result& result, TokenKind tokens) {
  nlohmann::ordered_json json;
  json["loss"] = result.loss;
  for (const Unit& unit : units_of(result, tokens)) {
    json[unit.key] = unit.bits;
    json[unit.count_key] = unit.count;
  }
  if (result.best_possible) json["best_possible"] = *result.best_possible;
  return json_text(json) + "\n";
}

std::string as_text(const Result& result, TokenKind tokens) {
  const std::vector<Unit> units = units_of(result, tokens);
  const auto bits = [](const Unit& unit) {
    return fmt::format("{:.4f} bits a {}, over {} {}{}", unit.bits, unit.name, unit.count, unit.name,
                       unit.count == 1 ? "" : "s");
  };
  std::string text = fmt::format("loss {:.4f} nats, {} of {}", result.loss, bits(units[0]), result.text);
  if (units.size() > 1 && units[1].count != units[0].count) text += "; " + bits(units[1]);
  if (result.best_possible) text += fmt::format("; the best possible loss is {:.4f} nats", *result.best_possible);
  return text + "\n";
}

}  // namespace

int run_eval(int argc, const char* const* argv) {
  Flags flags = eval_flags();
  if (!flags.parse(argc, argv)) return 0;
  const std::vector<std::string>& arguments = flags.arguments();
  if (arguments.empty()) fail_usage("tril eval", "a run's folder or a model file", "none");
  const bool of_validation = arguments.size() == 1 || flags.on("validation");
  if (of_validation && flags.on("all-files"))
    fail_usage("--all-files", "not to be given for the validation part", "it",
               "the text is read as it was for training");
  const auto threads = static_cast<int>(flags.integer("threads", 0, 1024));
  Log log;
  const Model model = load_model(arguments[0]);
  for (const std::string& line : model.warnings) log.warn(line);
  Context context({.threads = threads > 0 ? threads : default_threads()});
  const std::vector<std::string> paths(arguments.begin() + 1, arguments.end());
  const Result result = of_validation ? on_validation_part(context, model, folder_of_model(arguments[0]), paths)
                                      : on_texts(context, model, paths, flags.on("all-files"), log);
  const TokenKind tokens = model.training.tokens;
  write_output(flags.on("json") ? as_json(result, tokens) : as_text(result, tokens));
  return 0;
}

}  // namespace tril::cli
