// The best model of a run that goes on with another measure of the validation loss.
#include <cmath>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "support/catch.h"
#include "train/model_state.h"
#include "train/run/evaluate.h"
#include "train/run/run.h"
#include "train/tiny_shell.h"

namespace tril::test {
namespace {

using Change = std::function<void(TrainConfig&)>;
const Change kNothing = [](TrainConfig&) {};

TrainConfig run_config() {
  TrainConfig config = tiny_config();
  config.steps = 6;
  config.eval_every = 2;
  config.eval_tokens = 8;
  config.sample_length = 0;
  return config;
}

DType precision_of(const TrainConfig& config) { return config.dtype == Precision::kBf16 ? DType::bf16 : DType::f32; }

// Trains in the folder, from its beginning or from where it stands with its configuration changed.
bool train_in(const std::string& path, const Change& change, const std::function<bool()>& stopped = never) {
  const bool fresh = !std::filesystem::exists(path + "/last.safetensors");
  RunFolder folder(path, fresh ? RunFolder::For::fresh : RunFolder::For::resume);
  const Tokenizer tokenizer = Tokenizer::characters_of(tiny_text(), "tiny.txt");
  Model model = fresh ? make_model(run_config(), tokenizer) : load_checkpoint(path);
  const TrainConfig before = model.training;
  TrainConfig config = before;
  change(config);
  if (config != before) model = with_training(std::move(model), config);
  const Dataset data(text_of(tiny_text()), model.tokenizer, config.val_fraction, config.context);
  model.state.text.bytes = data.text_bytes();
  model.state.text.crc32 = data.text_crc32();
  Context context({.threads = 1, .seed = static_cast<uint64_t>(config.seed), .precision = precision_of(config)});
  Log log(true);
  Run run({context, model, data, folder, log}, {.best_possible = {}, .stopped = stopped});
  if (fresh) run.begin();
  if (!fresh) run.resume(config != before);
  return run.train();
}

// The validation loss of the model in a file, by the rule of `config`.
double measured(const std::string& path, const TrainConfig& config) {
  const Model model = load_model(path);
  const Dataset data(text_of(tiny_text()), model.tokenizer, config.val_fraction, config.context);
  Context context({.threads = 1, .precision = precision_of(config)});
  if (context.precision() == DType::bf16) model.params->keep_shadow();
  return *evaluate(context, *model.lm, data.validation(config.context, config.eval_tokens), never);
}

TrainConfig changed_config(const Change& change) {
  TrainConfig config = run_config();
  change(config);
  return config;
}

std::vector<nlohmann::json> events(const std::string& log, const std::string& kind) {
  std::vector<nlohmann::json> out;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (auto event = nlohmann::json::parse(line); event.at("event") == kind) out.push_back(std::move(event));
  return out;
}

const Change kAllTokens = [](TrainConfig& config) { config.eval_tokens = 0; };
const Change kHalfPrecision = [](TrainConfig& config) { config.dtype = Precision::kBf16; };
const Change kBoth = [](TrainConfig& config) {
  config.eval_tokens = 24;
  config.dtype = Precision::kBf16;
};

}  // namespace

TEST_CASE("tril train: a best model that was measured on an easy part does not stand in a better one's way") {
  const TinyShell shell;
  // The middle of the validation part, which one window lies in, is a single letter.
  const std::string hard = tiny_text(300), easy(120, 'a');
  shell.put("uneven.txt", tiny_text(4000) + std::string(400, 'a') + hard + easy + hard);
  const std::string flags =
      " --layers 1 --heads 2 --width 8 --context 8 --batch 8 --lr 1e-2 --warmup 2 --sample-length "
      "0 --val-fraction 0.14 ";
  REQUIRE(shell.run("tril train uneven.txt --out r --steps 40 --eval-every 20 --eval-tokens 8" + flags).code == 0);
  const std::string before = shell.read("r/log.jsonl");
  const double easy_loss = events(before, "eval").back().at("best_loss");
  const Outcome outcome = shell.run("tril train --resume r --steps 400 --eval-tokens 0");
  REQUIRE(outcome.code == 0);
  const auto evaluations = events(shell.read("r/log.jsonl").substr(before.size()), "eval");
  double least = std::numeric_limits<double>::infinity();
  for (const auto& each : evaluations) least = std::min(least, each.at("loss").get<double>());
  REQUIRE(least > easy_loss);  // so the old, easy loss is the lowest, and would keep every later model from being saved
  const auto kept = nlohmann::json::parse(shell.run("tril info r/model.safetensors --json").out);
  CHECK(kept.at("step") > 40);
  CHECK(kept.at("loss") == least);
  CHECK(nlohmann::json::parse(shell.run("tril eval r --json").out).at("loss") == least);
  CHECK(nlohmann::json::parse(shell.run("tril info r/last.safetensors --json").out).at("best_loss") == least);
  std::ostringstream expected;
  expected << "validation loss " << std::fixed << std::setprecision(4) << least;
  CHECK_THAT(outcome.out, contains(expected.str()));
}

TEST_CASE("run: the best is measured again by whatever rule holds from now on, wherever it is told") {
  for (const Change& change : {kAllTokens, kHalfPrecision, kBoth}) {
    const TempFolder folder;
    REQUIRE(train_in(folder.path(), kNothing));
    const std::string best = folder / kModelFile;
    const ModelState before = load_model(best).state;
    CHECK(before.loss == measured(best, run_config()));
    REQUIRE(measured(best, changed_config(change)) != before.loss);
    CHECK(train_in(folder.path(), change));
    const ModelState after = load_model(best).state, last = load_checkpoint(folder.path()).state;
    CHECK(after.loss == measured(best, changed_config(change)));
    CHECK(last.best_loss == after.loss);
    CHECK(last.best_step == after.step);
    CHECK(last.loss == measured(folder / kLastFile, changed_config(change)));
    CHECK(last.best_loss <= last.loss);
    // And back again.
    CHECK(train_in(folder.path(), [](TrainConfig& config) { config = run_config(); }));
    CHECK(load_model(best).state.loss == measured(best, run_config()));
    CHECK(load_checkpoint(folder.path()).state.best_loss == measured(best, run_config()));
  }
}

TEST_CASE("run: stopped while it measures its best again, it ends as if it had not been") {
  const Change change = [](TrainConfig& config) {
    config.eval_tokens = 0;
    config.steps = 9;
  };
  const TempFolder begun;
  REQUIRE(train_in(begun.path(), kNothing));
  const auto from_there = [&](const TempFolder& folder) {
    std::filesystem::copy(begun.path(), folder.path(), std::filesystem::copy_options::recursive);
    std::filesystem::remove(folder / ".lock");
  };
  const TempFolder straight;
  from_there(straight);
  int64_t looks = 0;
  REQUIRE(train_in(straight.path(), change, [&] { return ++looks < 0; }));
  REQUIRE(looks > 3);
  for (int64_t moment = 1; moment <= looks; ++moment) {
    INFO("stopped at look " << moment << " of " << looks);
    const TempFolder folder;
    from_there(folder);
    int64_t left = moment;
    if (!train_in(folder.path(), change, [&] { return --left <= 0; })) CHECK(train_in(folder.path(), kNothing));
    for (const std::string& name : {std::string(kModelFile), std::string(kLastFile), optimizer_file(9)})
      CHECK((contents_of(folder / name) == contents_of(straight / name)));
  }
}

TEST_CASE("run: the best of an older version, which tells no rule, is measured again where its configuration differs") {
  for (const bool differs : {false, true}) {
    const TempFolder folder;
    REQUIRE(train_in(folder.path(), kNothing));
    const std::string best = folder / kModelFile;
    for (const std::string& file : {best, folder / kLastFile})
      rewrite_state(file, std::regex(",\"measured\":\\{[^}]*\\}"), "");
    const std::string before = contents_of(best);
    const Change change = [&](TrainConfig& config) { config.eval_tokens = differs ? 0 : 8; };
    CHECK(train_in(folder.path(), change));
    CHECK((contents_of(best) == before) == !differs);
    CHECK(load_checkpoint(folder.path()).state.best_loss == measured(best, changed_config(change)));
  }
}

TEST_CASE("run: a best model that is gone, worse than remembered, or another's stands in nobody's way") {
  TrainConfig other = run_config();
  other.width = 16;
  const std::vector<std::pair<std::string, std::function<void(const std::string&)>>> troubles = {
      {"gone", [](const std::string& best) { std::filesystem::remove(best); }},
      {"worse",
       [](const std::string& best) {
         Model model = make_model(run_config(), Tokenizer::characters_of(tiny_text(), "tiny.txt"));
         model.state = load_model(best).state;
         save_model(best, model);
         model.state.loss = measured(best, run_config());
         save_model(best, model);
       }},
      {"another's", [&](const std::string& best) {
         Model model = make_model(other, Tokenizer::characters_of(tiny_text(), "tiny.txt"));
         model.state.loss = 1e-3;
         save_model(best, model);
       }}};
  for (const auto& [what, trouble] : troubles) {
    INFO(what);
    const TempFolder folder;
    REQUIRE(train_in(folder.path(), kNothing));
    const ModelState before = load_checkpoint(folder.path()).state;
    trouble(folder / kModelFile);
    // Every later model is worse than the one remembered.
    CHECK(train_in(folder.path(), [](TrainConfig& config) {
      config.steps = 8;
      config.lr = config.min_lr = 0.5;
    }));
    REQUIRE(std::filesystem::exists(folder / kModelFile));
    const ModelState kept = load_model(folder / kModelFile).state, last = load_checkpoint(folder.path()).state;
    REQUIRE(last.loss > before.best_loss);
    CHECK(kept.loss == measured(folder / kModelFile, run_config()));
    CHECK(kept.loss == last.best_loss);
    CHECK(load_model(folder / kModelFile).training.width == 8);
  }
}

}  // namespace tril::test
