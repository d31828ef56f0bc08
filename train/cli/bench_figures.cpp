#include "train/cli/bench_figures.h"
#include "train/run/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/kernels/rows.h"
#include "core/machine/parallel.h"
#include "core/matmul/gemm.h"
#include "nn/decode.h"
#include "train/cli/allocations.h"
#include "train/run/trainer.h"

namespace tril::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Times calls after `warm_up` that do not count: at least `least`, at most `most`, and until they took `long_enough`
// seconds. Returns the seconds of each.
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

// The fastest of three large products, one for each form that training uses. T is the operands' type.
template <class T>
double peak_gflops(Context& context) {
  constexpr int64_t kSize = 2048;
  constexpr size_t kCount = kSize * kSize;
  const std::vector<T> a(kCount, T(0.5f)), b(kCount, T(0.25f));
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

TRIL_INLINE float sum_of(const float* x, int64_t n) { return rows::sum(x, n); }

double read_gb_per_s(const Context& context) {
  constexpr int64_t kCount = int64_t{1} << 25, kGrain = int64_t{1} << 16;
  MemoryBlock memory(kCount * static_cast<int64_t>(sizeof(float)));
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  parallel_for(context.threads(), kCount, kGrain,
               [&](int64_t begin, int64_t end, int) { std::fill(numbers + begin, numbers + end, 1.0f); });
  std::vector<float> sums(static_cast<size_t>(context.threads()));
  const auto times = time_calls(1, 5, 5, 0, [&] {
    parallel_for(context.threads(), kCount, kGrain, [&](int64_t begin, int64_t end, int thread) {
      sums[static_cast<size_t>(thread)] = cloned<sum_of>(numbers + begin, end - begin);
    });
  });
  return 1e-9 * static_cast<double>(memory.bytes()) / *std::min_element(times.begin(), times.end());
}

// Where a step's time goes, measured in other steps than those that are timed as a whole.
std::vector<OpTime> profile_step(Context& context, Trainer& trainer) {
  constexpr size_t kLeast = 2, kMost = 100;
  constexpr double kLongEnough = 2.0;
  Profile profile;
  context.profile = &profile;
  const auto times = time_calls(0, kLeast, kMost, kLongEnough, [&] { (void)trainer.step(); });
  context.profile = nullptr;
  std::vector<OpTime> rows = profile.rows();
  OpTime rest;
  rest.op = "the rest";
  for (const double time : times) rest.forward += time;
  for (const OpTime& row : rows) rest.forward -= row.seconds();
  rows.push_back(rest);
  const auto steps = static_cast<double>(times.size());
  for (OpTime& row : rows) {
    row.calls = std::lround(static_cast<double>(row.calls) / steps);
    for (double* const sum : {&row.forward, &row.backward, &row.flops, &row.bytes}) *sum /= steps;
  }
  std::sort(rows.begin(), rows.end(), [](const OpTime& a, const OpTime& b) { return a.seconds() > b.seconds(); });
  return rows;
}

void time_training(Context& context, Model& model, const Dataset& data, BenchFigures& figures) {
  constexpr int kWarmUp = 3;  // memory grows in the first step, and is laid out again for the second
  constexpr size_t kLeast = 5, kMost = 300;
  constexpr double kLongEnough = 4.0;
  Trainer trainer(context, model, data);
  for (int i = 0; i < kWarmUp; ++i) (void)trainer.step();

  const int64_t system_before = context.allocations();
  count_allocations(true);
  (void)trainer.step();
  figures.allocations = counted_allocations() + context.allocations() - system_before;
  count_allocations(false);

  const auto times = time_calls(0, kLeast, kMost, kLongEnough, [&] { (void)trainer.step(); });
  figures.step_s = median(times);
  figures.least_step_s = *std::min_element(times.begin(), times.end());
  figures.chars_per_s = static_cast<double>(trainer.tokens_a_step()) / figures.step_s;
  const double batch = training_needs(model.training, model.lm->vocabulary(), context.precision()).flops;
  figures.gflops = 1e-9 * static_cast<double>(model.training.accumulate) * batch / figures.step_s;
  figures.ops = profile_step(context, trainer);
}

// With a long context no warm-up is needed, and decoding it once is enough.
constexpr int64_t kLongContext = 512;

// Decodes one stream over the whole context, several times.
double decoded_chars_per_s(const Model& model, const Context& context) {
  Decoder decoder(*model.lm, context.threads(), 1, context.precision());
  const int64_t length = model.lm->context();
  const auto vocabulary = static_cast<int32_t>(model.lm->vocabulary());
  const bool once = length > kLongContext;
  const auto times = time_calls(once ? 0 : 2, once ? 1 : 5, 2000, 1.0, [&] {
    decoder.reset();
    for (int64_t i = 0; i < length; ++i) (void)decoder.feed(static_cast<int32_t>(i) % vocabulary);
  });
  return static_cast<double>(length) / median(times);
}

double together_chars_per_s(const Model& model, const Context& context, int64_t streams) {
  Decoder decoder(*model.lm, context.threads(), streams, context.precision());
  const int64_t length = model.lm->context();
  std::vector<Decoder::Next> next;
  for (int64_t i = 0; i < streams; ++i) next.push_back({i, static_cast<int32_t>(i % model.lm->vocabulary())});
  const bool once = length > kLongContext;
  const auto times = time_calls(once ? 0 : 1, once ? 1 : 2, 200, 1.0, [&] {
    decoder.reset();
    for (int64_t i = 0; i < length; ++i) decoder.feed_each(next);
  });
  return static_cast<double>(streams * length) / median(times);
}

int64_t peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

}  // namespace

BenchFigures measure(Context& context, Model& model, const Dataset& data) {
  BenchFigures figures;
  time_training(context, model, data, figures);
  figures.decoded_chars_per_s = decoded_chars_per_s(model, context);
  figures.peak_rss_mib = peak_rss_mib();
  constexpr int64_t kStreams = 64, kCaches = int64_t{512} << 20;
  figures.streams = std::clamp<int64_t>(kCaches / Decoder::stream_bytes(*model.lm, context.precision()), 1, kStreams);
  figures.together_chars_per_s = together_chars_per_s(model, context, figures.streams);
  figures.peak_gflops = context.precision() == DType::bf16 ? peak_gflops<bf16>(context) : peak_gflops<float>(context);
  figures.read_gb_per_s = read_gb_per_s(context);
  return figures;
}

}  // namespace tril::cli
