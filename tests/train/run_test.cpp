#include "train/run/run.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include "support/catch.h"
#include "train/temp_folder.h"
#include "train/tiny_model.h"

namespace tril::test {
namespace {

TrainConfig run_config() {
  TrainConfig config = tiny_config();
  config.dropout = 0.2;
  config.accumulate = 2;
  config.steps = 5;
  config.eval_every = 2;
  config.sample_length = 4;
  return config;
}

// Trains in the folder, from its beginning or from where it stands, until `stopped` says so.
bool train_in(const std::string& path, const std::function<bool()>& stopped, const TrainConfig& config = run_config()) {
  const bool fresh = !std::filesystem::exists(path + "/last.safetensors");
  RunFolder folder(path, fresh ? RunFolder::For::fresh : RunFolder::For::resume);
  const Tokenizer tokenizer = Tokenizer::characters_of(tiny_text(), "tiny.txt");
  Model model = fresh ? make_model(config, tokenizer) : load_checkpoint(path);
  const Dataset data(text_of(tiny_text()), model.tokenizer, config.val_fraction, config.context);
  Context context({.threads = 1, .seed = static_cast<uint64_t>(config.seed)});
  Log log(true);
  Run run({context, model, data, folder, log}, {.best_possible = {}, .stopped = stopped});
  if (fresh) run.begin();
  if (!fresh) run.resume(false);
  return run.train();
}

void check_same_run(const TempFolder& a, const TempFolder& b, int64_t steps) {
  for (const std::string& name : {std::string(kModelFile), std::string(kLastFile), optimizer_file(steps)}) {
    INFO(name);
    CHECK((contents_of(a / name) == contents_of(b / name)));
  }
}

}  // namespace

TEST_CASE("run: stopped at whatever moment it looks, and resumed, it ends with the same files") {
  const TempFolder straight;
  int64_t looks = 0;
  REQUIRE(train_in(straight.path(), [&] {
    ++looks;
    return false;
  }));
  REQUIRE(looks > 20);  // between micro-batches, in evaluations, in samples
  for (int64_t moment = 1; moment <= looks; ++moment) {
    INFO("stopped at look " << moment << " of " << looks);
    const TempFolder folder;
    int64_t left = moment;
    const auto stop = [&] { return --left <= 0; };
    const bool done = train_in(folder.path(), stop);
    if (!done) CHECK(train_in(folder.path(), never));
    check_same_run(straight, folder, run_config().steps);
  }
}

TEST_CASE("run: whatever goes wrong at whatever moment, the steps done are saved") {
  const TempFolder straight;
  int64_t looks = 0;
  REQUIRE(train_in(straight.path(), [&] {
    ++looks;
    return false;
  }));
  std::set<int64_t> saved;
  int64_t without_error = 0;
  for (int64_t moment = 1; moment <= looks; ++moment) {
    INFO("an error at look " << moment << " of " << looks);
    const TempFolder folder;
    int64_t left = moment;
    const std::string error = error_of([&] {
      (void)train_in(folder.path(), [&] {
        if (--left == 0) throw Error("memory: none left");
        return false;
      });
    });
    without_error += error.empty() ? 1 : 0;  // a sample is not worth a run
    if (!error.empty()) {
      saved.insert(load_checkpoint(folder.path()).state.step);
      CHECK_THAT(error, contains("memory: none left; step ") && contains(" is saved, --resume goes on from there"));
      CHECK(train_in(folder.path(), never));
    }
    check_same_run(straight, folder, run_config().steps);
  }
  CHECK(saved == std::set<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(without_error > 0);
}

TEST_CASE("run: with its folder moved away and another made at whatever moment, it goes on there") {
  const TempFolder straight;
  int64_t looks = 0;
  REQUIRE(train_in(straight.path(), [&] {
    ++looks;
    return false;
  }));
  for (int64_t moment = 1; moment <= looks; ++moment) {
    INFO("moved at look " << moment << " of " << looks);
    const TempFolder parent;
    const std::string run = parent / "run";
    int64_t left = moment;
    CHECK(train_in(run, [&] {
      if (--left != 0) return false;
      std::filesystem::rename(run, parent / "moved");
      std::filesystem::create_directory(run);
      return false;
    }));
    for (const std::string& name :
         {std::string(kLastFile), optimizer_file(run_config().steps), std::string(kConfigFile)}) {
      INFO(name);
      if (name != kLastFile) CHECK((contents_of(run + "/" + name) == contents_of(straight / name)));
      CHECK(std::filesystem::exists(run + "/" + name));
    }
    CHECK(std::filesystem::exists(run + "/" + kModelFile));
  }
}

TEST_CASE("run: what another process has saved in its folder is left alone") {
  const TempFolder straight;
  REQUIRE(train_in(straight.path(), never));
  const std::string theirs = contents_of(straight / kLastFile);
  int64_t looks = 0;
  (void)train_in(TempFolder().path(), [&] { return ++looks < 0; });
  for (int64_t moment = 1; moment <= looks; ++moment) {
    INFO("written at look " << moment << " of " << looks);
    const TempFolder folder;
    int64_t left = moment;
    const std::string error = error_of([&] {
      (void)train_in(folder.path(), [&] {
        if (--left == 0) write_file_atomically(folder / kLastFile, theirs);
        return false;
      });
    });
    CHECK_THAT(error, contains("expected the checkpoint that this run saved, got another; move it away"));
    CHECK((contents_of(folder / kLastFile) == theirs));
  }
}

TEST_CASE("run: with its folder emptied at whatever moment, all is there in the end") {
  int64_t looks = 0;
  (void)train_in(TempFolder().path(), [&] { return ++looks < 0; });
  for (int64_t moment = 1; moment <= looks; ++moment)
    for (const bool stops : {false, true}) {
      INFO("emptied at look " << moment << " of " << looks << (stops ? ", and stopped" : ""));
      const TempFolder folder;
      int64_t left = moment;
      const bool done = train_in(folder.path(), [&] {
        if (--left == 0)
          for (const std::string& name : folder.names()) std::filesystem::remove(folder / name);
        return stops && left <= 0;
      });
      CHECK(done != stops);
      const int64_t step = load_checkpoint(folder.path()).state.step;
      for (const std::string& name :
           {std::string(kModelFile), optimizer_file(step), std::string(kConfigFile), std::string(kLogFile)}) {
        INFO(name);
        CHECK(std::filesystem::exists(folder / name));
      }
      if (stops) CHECK(train_in(folder.path(), never));
    }
}

TEST_CASE("run: saves that may not survive a power failure count") {
  const TempFolder straight, folder;
  REQUIRE(train_in(straight.path(), never));
  std::optional<Unprivileged> nobody;
  CHECK(train_in(folder.path(), [&] {
    if (nobody) return false;
    REQUIRE(::chmod(folder.path().c_str(), 0333) == 0);  // files can be made in it, but it cannot be opened
    if (::geteuid() == 0)
      for (const std::string& name : folder.names()) REQUIRE(::chown((folder / name).c_str(), 65534, 65534) == 0);
    if (::geteuid() == 0) REQUIRE(::chown(folder.path().c_str(), 65534, 65534) == 0);
    nobody.emplace();
    return false;
  }));
  nobody.reset();
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  check_same_run(straight, folder, run_config().steps);
}

TEST_CASE("run: an evaluation that was cut short is made up for on resuming") {
  const TempFolder folder;
  TrainConfig config = run_config();
  config.sample_length = 0;
  int64_t looks = 0;
  // Two steps of two micro-batches are four looks; the fifth is in the evaluation.
  CHECK_FALSE(train_in(
      folder.path(), [&] { return ++looks >= 5; }, config));
  const ModelState stopped = load_checkpoint(folder.path()).state;
  CHECK(stopped.step == 2);
  CHECK(std::isnan(stopped.loss));
  CHECK_FALSE(std::filesystem::exists(folder / kModelFile));
  looks = 0;
  CHECK_FALSE(train_in(folder.path(), [&] { return ++looks >= 2; }));  // the evaluation, and then no step
  const ModelState resumed = load_model(folder / kModelFile).state;
  CHECK(resumed.step == 2);
  CHECK(resumed.loss > 0);
}

TEST_CASE("run: the best model stays when later ones are worse") {
  const TempFolder folder;
  TrainConfig config = run_config();
  config.steps = 6;
  config.lr = 100.0;  // so that it gets worse, by orders of magnitude
  config.min_lr = 100.0;
  config.warmup = 5;
  REQUIRE(train_in(folder.path(), never, config));
  const ModelState best = load_model(folder.path()).state, last = load_checkpoint(folder.path()).state;
  CHECK(best.step < last.step);
  CHECK(best.loss < last.loss);
  CHECK(last.best_loss == best.loss);
  CHECK(last.best_step == best.step);
}

TEST_CASE("run: a best model that is younger than the checkpoint is not forgotten") {
  const TempFolder folder, later;
  REQUIRE(train_in(later.path(), never));
  int64_t looks = 0;
  CHECK_FALSE(train_in(folder.path(), [&] { return ++looks >= 2; }));
  // As the folder is when the process ends after storing the best model and before the checkpoint.
  std::filesystem::copy(later / kModelFile, folder / kModelFile);
  const std::string before = contents_of(folder / kModelFile);
  CHECK(train_in(folder.path(), never));
  CHECK((contents_of(folder / kModelFile) == before));
  CHECK(load_checkpoint(folder.path()).state.best_loss == load_model(folder.path()).state.loss);
}

TEST_CASE("run: without a validation part the newest model is the one to sample from, also when stopped") {
  const TempFolder folder;
  TrainConfig config = run_config();
  config.val_fraction = 0;
  int64_t looks = 0;
  CHECK_FALSE(train_in(
      folder.path(), [&] { return ++looks >= 4; }, config));
  CHECK(load_model(folder / kModelFile).state.step == 1);
  CHECK(train_in(folder.path(), never, config));
  CHECK(load_model(folder / kModelFile).state.step == 5);
}

}  // namespace tril::test
