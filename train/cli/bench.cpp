// tril bench: how fast the real training step and decoding are on this machine, beside what its matrix products reach.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/gemm.h"
#include "nn/decode.h"
#include "train/cli/allocations.h"
#include "train/cli/command.h"
#include "train/cli/flags.h"
#include "train/cli/output.h"
#include "train/corpus.h"
#include "train/memory.h"
#include "train/report.h"
#include "train/text.h"
#include "train/threads.h"
#include "train/trainer.h"

namespace tril::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Seconds of each call, after `warm_up` that do not count, until there are enough of them and they took long enough.
template <class Body>
std::vector<double> time_calls(int warm_up, size_t least, size_t most, double long_enough, Body&& body) {
  for (int i = 0; i < warm_up; ++i) body();
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < least || (times.size() < most && seconds_since(start) < long_enough)) {
    const auto before = Clock::now();
    body();
    times.push_back(seconds_since(before));
  }
  return times;
}

struct TrainFigures {
  double ms_per_step, ms_min, chars_per_s, gflops, peak_gflops;
  int64_t allocations_per_step;
};

// The best of three large products, one of each form that training uses.
double peak_gflops(Context& context) {
  constexpr int64_t kSize = 2048;
  constexpr size_t kCount = kSize * kSize;
  const std::vector<float> a(kCount, 0.5f), b(kCount, 0.25f);
  std::vector<float> c(kCount);
  double best = 0;
  for (const auto& [transpose_a, transpose_b] : {std::pair{false, false}, {false, true}, {true, false}}) {
    const MatmulShape shape{.m = kSize,
                            .n = kSize,
                            .k = kSize,
                            .lda = kSize,
                            .ldb = kSize,
                            .ldc = kSize,
                            .transpose_a = transpose_a,
                            .transpose_b = transpose_b};
    const auto times = time_calls(1, 5, 5, 0, [&] { matmul(context, shape, a.data(), b.data(), c.data()); });
    best = std::max(best, 2e-9 * kSize * kSize * kSize / *std::min_element(times.begin(), times.end()));
  }
  return best;
}

TrainFigures time_training(Context& context, Model& model, const Dataset& data) {
  constexpr int kWarmUp = 3;  // memory grows in the first step, and is laid out anew for the second
  constexpr size_t kLeast = 5, kMost = 300;
  constexpr double kLongEnough = 4.0;
  Trainer trainer(context, model, data);
  for (int i = 0; i < kWarmUp; ++i) (void)trainer.step();

  const int64_t system_before = context.allocations();
  count_allocations(true);
  (void)trainer.step();
  const int64_t allocations = counted_allocations() + context.allocations() - system_before;
  count_allocations(false);

  const auto times = time_calls(0, kLeast, kMost, kLongEnough, [&] { (void)trainer.step(); });
  const double step = median(times);
  const TrainConfig& config = model.training;
  return {.ms_per_step = 1e3 * step,
          .ms_min = 1e3 * *std::min_element(times.begin(), times.end()),
          .chars_per_s = static_cast<double>(trainer.tokens_a_step()) / step,
          .gflops = 1e-9 * model.config.step_flops(config.batch * config.accumulate) / step,
          .peak_gflops = peak_gflops(context),
          .allocations_per_step = allocations};
}

// One stream over the whole context, again and again.
double decoded_chars_per_s(const Model& model, int threads) {
  Decoder decoder(*model.params, model.config, threads);
  const int64_t length = model.config.context;
  const auto vocabulary = static_cast<int32_t>(model.config.vocabulary);
  const auto times = time_calls(2, 5, 2000, 1.0, [&] {
    decoder.reset();
    for (int64_t i = 0; i < length; ++i) (void)decoder.feed(static_cast<int32_t>(i) % vocabulary);
  });
  return static_cast<double>(length) / median(times);
}

int64_t peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

std::string to_json(const std::string& preset, int threads, const TrainFigures& train, double decode) {
  nlohmann::ordered_json report = {{"preset", preset},
                                   {"dtype", "f32"},
                                   {"threads", threads},
                                   {"train",
                                    {{"ms_per_step", train.ms_per_step},
                                     {"ms_min", train.ms_min},
                                     {"chars_per_s", std::round(train.chars_per_s)},
                                     {"gflops", train.gflops},
                                     {"peak_gflops", train.peak_gflops},
                                     {"share_of_peak", rounded(train.gflops / train.peak_gflops, 0.001)},
                                     {"allocations_per_step", train.allocations_per_step}}},
                                   {"decode", {{"chars_per_s", std::round(decode)}}},
                                   {"peak_rss_mib", peak_rss_mib()}};
  return report.dump() + "\n";
}

std::string to_text(const std::string& preset, int threads, const TrainFigures& train, double decode) {
  return cat("preset ", preset, ", f32, ", threads, threads == 1 ? " thread\n" : " threads\n", "training  ",
             fixed(train.ms_per_step, 2), " ms a step (best ", fixed(train.ms_min, 2), "), ",
             fixed(train.chars_per_s, 0), " characters/s\n          ", fixed(train.gflops, 0), " GFLOP/s, ",
             fixed(100 * train.gflops / train.peak_gflops, 0), " % of the ", fixed(train.peak_gflops, 0),
             " that large matrix products reach; ", train.allocations_per_step, " allocations a step\n", "decoding  ",
             fixed(decode, 0), " characters/s, one stream\nmemory    ", peak_rss_mib(), " MiB at most\n");
}

}  // namespace

int run_bench(int argc, const char* const* argv) {
  Flags flags(
      {.name = "bench",
       .usage = "[flags]",
       .about = "Times the real training step (batch, forward, backward, clipping, AdamW) and decoding of one stream.\n"
                "Figures are medians. Run it on a quiet machine."},
      {{.name = "preset", .help = "The model: small or baby.", .value = "NAME", .fallback = "small"},
       {.name = "dtype", .help = "The numbers to compute in: f32.", .value = "TYPE", .fallback = "f32"},
       {.name = "threads", .help = "Threads; 0 for as many as this process may run on.", .value = "N", .fallback = "0"},
       {.name = "json", .help = "Print one JSON object."}});
  if (!flags.parse(argc, argv)) return 0;
  if (flags.text("dtype") != "f32")
    fail_usage("dtype", "f32", flags.text("dtype"), "other types are not there to be timed");
  const std::string name = flags.text("preset");
  const TrainConfig config = preset(name);
  const auto asked = static_cast<int>(flags.integer("threads", 0, 1024));
  const int threads = asked == 0 ? default_threads() : asked;

  Corpus corpus = load_corpus({}, config.tokens);
  const Tokenizer tokenizer = Tokenizer::make(config.tokens, corpus.text.bytes, corpus.text.name);
  const Dataset data(std::move(corpus.text), tokenizer, config.val_fraction, config.context);
  corpus.stories.reset();
  expect_memory(model_config(config, tokenizer.size()), config.batch);
  Context context({.threads = threads, .seed = static_cast<uint64_t>(config.seed)});
  Model model = make_model(config, tokenizer);
  const TrainFigures train = time_training(context, model, data);
  const double decode = decoded_chars_per_s(model, threads);
  write_output(flags.on("json") ? to_json(name, threads, train, decode) : to_text(name, threads, train, decode));
  return 0;
}

}  // namespace tril::cli
