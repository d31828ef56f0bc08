#include "train/run/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <regex>

#include "support/catch.h"
#include "train/model/safetensors.h"
#include "train/model_state.h"
#include "train/run/run_folder.h"
#include "train/temp_folder.h"
#include "train/tiny_model.h"

namespace tril::test {
namespace {

namespace fs = std::filesystem;

// A configuration in which a mistake would show: accumulation, dropout, and betas that are not the defaults.
TrainConfig demanding_config() {
  TrainConfig config = tiny_config();
  config.dropout = 0.2;
  config.accumulate = 2;
  config.beta1 = 0.8;
  config.beta2 = 0.95;
  return config;
}

void train_to(Tiny& tiny, int64_t step) {
  while (tiny.trainer.steps_done() < step) (void)tiny.trainer.step();
}

void save(const std::string& folder, Tiny& tiny) {
  tiny.model.state.step = tiny.trainer.steps_done();
  save_checkpoint(folder, tiny.model, tiny.trainer.optimizer());
}

// Loads into a process that knows nothing of the run but its folder.
Tiny load(const std::string& folder) {
  Model model = load_checkpoint(folder);
  return Tiny(std::move(model), tiny_text());
}

std::string load_error(const std::string& folder) {
  return error_of([&] {
    Tiny tiny = load(folder);
    load_optimizer(folder, tiny.model, tiny.trainer.optimizer());
  });
}

void check_equal(const Tiny& a, const Tiny& b) {
  CHECK(a.trainer.steps_done() == b.trainer.steps_done());
  CHECK(same_bits(a.weights(), b.weights()));
  const auto mine = a.trainer.optimizer().state(), theirs = b.trainer.optimizer().state();
  REQUIRE(mine.size() == theirs.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    INFO(mine[i].name);
    CHECK(mine[i].name == theirs[i].name);
    CHECK(same_bits(a.flat(mine[i].data), b.flat(theirs[i].data)));
  }
}

// The mean loss of the model as it is now over `count` of the run's samples, from number `first` on.
double loss_of_samples(Tiny& tiny, int64_t first, int64_t count) {
  const TrainConfig& config = tiny.model.training;
  std::vector<int32_t> inputs(static_cast<size_t>(count * config.context)), targets(inputs.size());
  tiny.data.batch(static_cast<uint64_t>(config.seed), first, count, config.context, inputs.data(), targets.data());
  Tape tape(tiny.context, Tape::Mode::evaluate);
  return tiny.model.lm
      ->loss(tape.constant<int32_t>({count, config.context}, inputs),
             tape.constant<int32_t>({count, config.context}, targets))
      .item();
}

void copy_folder(const std::string& from, const std::string& to) {
  fs::remove_all(to);
  fs::copy(from, to);
}

}  // namespace

TEST_CASE("checkpoint: a run resumed at any step goes on bit for bit, with any optimizer") {
  constexpr int64_t kSteps = 6;
  TrainConfig config = demanding_config();
  config.optimizer = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  config.lr = config.optimizer == OptimizerKind::sgd ? 0.1 : config.lr;
  INFO(optimizer_name(config.optimizer));
  Tiny straight(config);
  std::vector<double> losses;
  for (int64_t i = 0; i < kSteps; ++i) losses.push_back(straight.trainer.step().loss);

  for (int64_t stop = 0; stop <= kSteps; ++stop) {
    INFO("resumed after step " << stop);
    const TempFolder folder;
    {
      Tiny first(config);
      train_to(first, stop);
      save(folder.path(), first);
    }
    Tiny second = load(folder.path());
    load_optimizer(folder.path(), second.model, second.trainer.optimizer());
    REQUIRE(second.trainer.steps_done() == stop);
    for (int64_t i = stop; i < kSteps; ++i) CHECK(second.trainer.step().loss == losses[static_cast<size_t>(i)]);
    check_equal(straight, second);
  }
}

TEST_CASE("checkpoint: the state of another optimizer is refused") {
  TrainConfig config = demanding_config();
  config.optimizer = OptimizerKind::sgd;
  Tiny first(config);
  train_to(first, 2);
  const TempFolder folder;
  save(folder.path(), first);
  Model model = load_checkpoint(folder.path());
  config.optimizer = OptimizerKind::adamw;
  Tiny other(with_training(std::move(model), config), tiny_text());
  CHECK_THAT(error_of([&] { load_optimizer(folder.path(), other.model, other.trainer.optimizer()); }),
             contains("optimizer-2.safetensors: expected the state of AdamW, got that of SGD; go on with the optimizer "
                      "that the run began with"));
}

TEST_CASE("checkpoint: further sets of weights are kept beside the optimizer's state, or missed by name") {
  Tiny first(demanding_config());
  train_to(first, 2);
  std::vector<float> average = first.weights(), older = first.mean();
  for (float& value : average) value = 0.5f * value;
  const auto sets = [](std::vector<float>& a, std::vector<float>& b) {
    return std::vector<NamedBuffer>{{"average", reinterpret_cast<std::byte*>(a.data())},
                                    {"older", reinterpret_cast<std::byte*>(b.data())}};
  };
  const TempFolder folder;
  first.model.state.step = first.trainer.steps_done();
  save_checkpoint(folder.path(), first.model, first.trainer.optimizer(), sets(average, older));

  Tiny back = load(folder.path());
  std::vector<float> average_back(average.size()), older_back(older.size());
  load_optimizer(folder.path(), back.model, back.trainer.optimizer(), sets(average_back, older_back));
  check_equal(first, back);
  CHECK(same_bits(average_back, average));
  CHECK(same_bits(older_back, older));

  const auto tensors = static_cast<int64_t>(first.model.params->params().size());
  CHECK_THAT(load_error(folder.path()), contains(cat("expected ", 2 * tensors, " tensors, got ", 4 * tensors)));
  save(folder.path(), first);
  CHECK_THAT(error_of([&] {
               load_optimizer(folder.path(), back.model, back.trainer.optimizer(), sets(average_back, older_back));
             }),
             contains(cat("expected ", 4 * tensors, " tensors, got ", 2 * tensors)));
  auto renamed = sets(average, older);
  renamed[1].name = "newer";
  save_checkpoint(folder.path(), first.model, first.trainer.optimizer(), renamed);
  CHECK_THAT(error_of([&] {
               load_optimizer(folder.path(), back.model, back.trainer.optimizer(), sets(average_back, older_back));
             }),
             contains("expected older.transformer.wte.weight, got no such tensor"));
}

TEST_CASE("checkpoint: a run resumed with another batch goes on with the samples that come next") {
  struct Size {
    int64_t batch, accumulate;
  };
  const TempFolder folder;
  {
    Tiny first;
    save(folder.path(), first);
  }
  int64_t seen = 0;
  for (const Size& size : {Size{4, 1}, {3, 1}, {3, 1}, {2, 3}, {1, 1}, {5, 2}}) {
    INFO(size.batch << " x " << size.accumulate << " after " << seen << " samples");
    Model model = load_checkpoint(folder.path());
    TrainConfig config = model.training;
    config.batch = size.batch;
    config.accumulate = size.accumulate;
    Tiny tiny(with_training(std::move(model), config), tiny_text());
    load_optimizer(folder.path(), tiny.model, tiny.trainer.optimizer());
    for (int i = 0; i < 2; ++i) {
      const double expected = loss_of_samples(tiny, seen, size.batch * size.accumulate);
      CHECK(tiny.trainer.step().loss == Approx(expected).epsilon(1e-6));
      seen += size.batch * size.accumulate;
    }
    save(folder.path(), tiny);
  }
}

TEST_CASE("checkpoint: one that knows its steps alone goes on with the samples that come next") {
  Tiny straight(demanding_config());
  train_to(straight, 3);
  const TempFolder folder;
  save(folder.path(), straight);
  rewrite_state(folder / kLastFile, std::regex(",\"samples\":[0-9]+"), "");
  Tiny back = load(folder.path());
  load_optimizer(folder.path(), back.model, back.trainer.optimizer());
  train_to(straight, 6);
  train_to(back, 6);
  check_equal(straight, back);
  CHECK(back.model.state.samples == 6 * 4 * 2);
}

TEST_CASE("checkpoint: whatever moment the process dies at, the folder holds one that goes on") {
  const TempFolder old_folder, new_folder;
  Tiny tiny(demanding_config());
  train_to(tiny, 2);
  save(old_folder.path(), tiny);
  copy_folder(old_folder.path(), new_folder.path());
  train_to(tiny, 4);
  save(new_folder.path(), tiny);
  REQUIRE(new_folder.names() == std::set<std::string>{"last.safetensors", "optimizer-4.safetensors"});

  // The stages of a save: each of the two files grows under a temporary name and then appears; then the old state goes.
  struct Moment {
    std::vector<std::string> from_old, from_new;
    int64_t step;
  };
  const std::string last = kLastFile, state2 = optimizer_file(2), state4 = optimizer_file(4);
  for (const Moment& moment : {Moment{{last, state2}, {}, 2}, Moment{{last, state2}, {state4}, 2},
                               Moment{{state2}, {last, state4}, 4}, Moment{{}, {last, state4}, 4}}) {
    const TempFolder folder;
    for (const std::string& name : moment.from_old) fs::copy(old_folder / name, folder / name);
    for (const std::string& name : moment.from_new) fs::copy(new_folder / name, folder / name);
    folder.put(".tril-tmp-999999999-0123456789abcdef", contents_of(new_folder / last).substr(0, 100));
    Tiny back = load(folder.path());
    load_optimizer(folder.path(), back.model, back.trainer.optimizer());
    CHECK(back.trainer.steps_done() == moment.step);
    train_to(back, 4);
    check_equal(back, tiny);
    save(folder.path(), back);
    CHECK_FALSE(fs::exists(folder / state2));
    CHECK(load_error(folder.path()).empty());
  }
}

TEST_CASE("checkpoint: saving again at the same step, and over a foreign file's name, works") {
  const TempFolder folder;
  Tiny tiny;
  train_to(tiny, 1);
  folder.put("optimizer-x.safetensors", "not ours");
  folder.put("optimizer-.safetensors", "not ours");
  save(folder.path(), tiny);
  const std::string before = contents_of(folder / kLastFile);
  save(folder.path(), tiny);
  CHECK(contents_of(folder / kLastFile) == before);
  CHECK(folder.names().size() == 4);
}

TEST_CASE("checkpoint: the state of other weights, or none, is refused by name") {
  const TempFolder folder, other;
  Tiny tiny;
  train_to(tiny, 3);
  save(folder.path(), tiny);
  TrainConfig config = tiny_config();
  config.seed = 9;
  Tiny stranger(config);
  train_to(stranger, 3);
  save(other.path(), stranger);

  const std::string state = optimizer_file(3);
  fs::remove(folder / state);
  CHECK_THAT(load_error(folder.path()),
             contains(folder / state + ": expected the optimizer's state, which a run needs to go on, got no file"));
  fs::copy(other / state, folder / state);
  CHECK(load_error(folder.path()) ==
        folder / state +
            ": expected the optimizer's state that belongs to last.safetensors, got that of other weights");
}

TEST_CASE("checkpoint: a damaged or hostile state is refused") {
  const TempFolder folder;
  Tiny tiny;
  train_to(tiny, 1);
  save(folder.path(), tiny);
  const std::string path = folder / optimizer_file(1);
  const Safetensors good = read_safetensors(path);
  const auto refusal =
      [&](const std::function<void(std::vector<SafetensorsTensor>&, std::map<std::string, std::string>&,
                                   std::vector<std::byte>&)>& change) {
        std::vector<std::byte> data = good.data;
        std::vector<SafetensorsTensor> tensors;
        for (const SafetensorsEntry& entry : good.entries)
          tensors.push_back({entry.name, entry.dtype, entry.shape, data.data() + entry.begin});
        auto metadata = good.metadata;
        change(tensors, metadata, data);
        write_safetensors(path, tensors, metadata);
        return load_error(folder.path());
      };
  const auto set = [&](std::vector<std::byte>& data, std::string_view name, float value) {
    std::memcpy(data.data() + good.find(name)->begin, &value, sizeof value);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  CHECK(refusal([](auto&, auto&, auto&) {}).empty());
  CHECK_THAT(refusal([&](auto&, auto&, auto& data) { set(data, "exp_avg_sq.transformer.wte.weight", -1e-9f); }),
             contains("finite values in exp_avg_sq.transformer.wte.weight, none negative, got others"));
  CHECK_THAT(refusal([&](auto&, auto&, auto& data) { set(data, "exp_avg.transformer.wte.weight", kNan); }),
             contains("finite values in exp_avg.transformer.wte.weight, got others"));
  CHECK(refusal([&](auto&, auto&, auto& data) { set(data, "exp_avg.transformer.wte.weight", -1.0f); }).empty());
  CHECK_THAT(refusal([](auto& tensors, auto&, auto&) { tensors.pop_back(); }), contains("expected 18 tensors, got 17"));
  CHECK_THAT(refusal([](auto& tensors, auto&, auto&) { tensors[0].name = "exp_avg.x"; }),
             contains("got no such tensor"));
  CHECK_THAT(refusal([](auto& tensors, auto&, auto&) { tensors[0].dtype = "I32"; }), contains("or I32"));
  CHECK_THAT(refusal([](auto& tensors, auto&, auto&) {
               auto& shape = tensors[0].shape;
               shape.push_back(1);
             }),
             contains("another shape"));
  CHECK_THAT(refusal([](auto&, auto& metadata, auto&) { metadata.erase("tril.weights"); }), contains("got none"));
  CHECK_THAT(refusal([](auto&, auto& metadata, auto&) { metadata["tril.step"] = "2"; }), contains("other weights"));
  folder.put(optimizer_file(1), "short");
  CHECK_THAT(load_error(folder.path()), contains("optimizer-1.safetensors: expected"));
}

TEST_CASE("checkpoint: where it cannot be written, the one before stays whole") {
  const TempFolder folder;
  Tiny tiny;
  train_to(tiny, 1);
  save(folder.path(), tiny);
  train_to(tiny, 2);
  REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
  {
    const Unprivileged nobody;
    CHECK_THROWS_AS(save(folder.path(), tiny), WriteError);
  }
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  CHECK(load_error(folder.path()).empty());
  CHECK(load_checkpoint(folder.path()).state.step == 1);
}

TEST_CASE("checkpoint: one that may not survive a power failure is whole") {
  const TempFolder folder;
  Tiny tiny;
  train_to(tiny, 1);
  save(folder.path(), tiny);
  train_to(tiny, 2);
  REQUIRE(::chmod(folder.path().c_str(), 0333) == 0);  // files can be made in it, but it cannot be opened
  if (::geteuid() == 0) REQUIRE(::chown(folder.path().c_str(), 65534, 65534) == 0);
  bool committed = false;
  try {
    const Unprivileged nobody;
    save(folder.path(), tiny);
  } catch (const WriteError& error) { committed = error.committed(); }
  CHECK(committed);
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  CHECK(load_error(folder.path()).empty());
  CHECK(load_checkpoint(folder.path()).state.step == 2);
}

TEST_CASE("run folder: a new one is new or empty, one to resume holds a run") {
  const TempFolder folder;
  const auto fresh = [&](const std::string& name) {
    return error_of([&] { RunFolder(folder / name, RunFolder::For::fresh); });
  };
  CHECK(fresh("a/b/c").empty());
  CHECK(fresh("a/b/c/").empty());  // only our lock is in it
  folder.put("a/b/c/optimizer-0.safetensors", "of a run that never came to its first checkpoint");
  CHECK(fresh("a/b/c").empty());
  folder.put("full/notes.txt", "mine");
  CHECK_THAT(fresh("full"),
             contains("full: expected a new or empty folder, got one with notes.txt in it; choose another"));
  folder.put("run/last.safetensors", "");
  CHECK_THAT(fresh("run"),
             contains("got one with a run in it; go on with it by --resume ") && contains("/run, or choose"));
  folder.put("file", "");
  CHECK_THAT(fresh("file"), contains("file: expected a folder, got a file"));

  const auto resume = [&](const std::string& name) {
    return error_of([&] { RunFolder(folder / name, RunFolder::For::resume); });
  };
  CHECK(resume("run").empty());
  CHECK_THAT(resume("full"), contains("full: expected a run to resume, with last.safetensors, got none"));
  CHECK_THAT(resume("none"), contains("none: expected a run folder, got none of that name"));
  CHECK_FALSE(fs::exists(folder / "none"));
}

TEST_CASE("run folder: one process at a time, and only stale leftovers go") {
  const TempFolder folder;
  folder.put("run/last.safetensors", "");
  folder.put("run/.tril-tmp-999999999-0123456789abcdef", "left by a process that is gone");
  folder.put("run/optimizer-7.safetensors", "kept until the next save");
  {
    const RunFolder held(folder / "run", RunFolder::For::resume);
    CHECK(held.locked());
    CHECK(held.file("x") == folder / "run/x");
    CHECK_THAT(error_of([&] { RunFolder(folder / "run", RunFolder::For::resume); }),
               contains("run: expected a folder that nobody else uses"));
  }
  CHECK(error_of([&] { RunFolder(folder / "run", RunFolder::For::resume); }).empty());
  CHECK_FALSE(fs::exists(folder / "run/.tril-tmp-999999999-0123456789abcdef"));
  CHECK(fs::exists(folder / "run/optimizer-7.safetensors"));
}

TEST_CASE("run folder: a read-only one is refused before anything is computed") {
  const TempFolder folder;
  folder.put("run/last.safetensors", "");
  REQUIRE(::chmod((folder / "run").c_str(), 0555) == 0);
  {
    const Unprivileged nobody;
    CHECK_THAT(error_of([&] { RunFolder(folder / "run", RunFolder::For::resume); }),
               contains("run: expected a folder that can be written to, got Permission denied"));
  }
  REQUIRE(::chmod((folder / "run").c_str(), 0755) == 0);
}

TEST_CASE("run folder: names of optimizer states are told from others") {
  CHECK(is_optimizer_file(optimizer_file(0)));
  CHECK(is_optimizer_file(optimizer_file(123)));
  for (const char* name : {"optimizer-.safetensors", "optimizer-1.safetensors.bak", "optimizer-1a.safetensors",
                           "optimizer--1.safetensors", "optimizer-", ".safetensors", "model.safetensors", ""})
    CHECK_FALSE(is_optimizer_file(name));
}

}  // namespace tril::test
