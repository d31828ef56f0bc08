// A GPT that learns to write, a character at a time: the whole of it, from a text to a sample. It is what `tril train`
// and `tril sample` do, without their comforts.
//
//   03_char_gpt [FILE] [--steps N]     FILE is any UTF-8 text; without one it reads stories of its own
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/random.h"
#include "nn/decode.h"
#include "nn/gpt.h"
#include "train/data/builtin_corpus.h"
#include "train/data/dataset.h"
#include "train/data/text.h"
#include "train/data/tokenizer.h"
#include "train/run/adamw.h"
#include "train/run/schedule.h"

namespace {

using tril::Tensor;

constexpr uint64_t kSeed = 1;
constexpr int64_t kBatch = 16, kContext = 64;

struct Arguments {
  std::string file;
  int64_t steps = 1000;
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = values[i];
    if (argument != "--steps") {
      arguments.file = argument;
      continue;
    }
    const std::string_view number = ++i < count ? values[i] : "";
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), arguments.steps);
    TRIL_CHECK(error == std::errc{} && end == number.data() + number.size() && arguments.steps > 0, "--steps",
               "a number of at least 1", number.empty() ? "nothing" : number);
  }
  return arguments;
}

tril::Text load(const std::string& file) {
  if (!file.empty()) return tril::load_texts(std::vector{file}, {});
  tril::Text stories;
  stories.name = "the built-in stories";
  stories.bytes = tril::builtin_corpus().text;
  return stories;
}

// One character after another: the model says how likely each is to come next, and chance picks. A lower temperature
// makes what is likely likelier.
std::string write(const tril::LanguageModel& model, const tril::Tokenizer& tokenizer, int64_t length) {
  constexpr double kTemperature = 0.8;
  tril::Decoder decoder(model);
  std::vector<int32_t> written = {tokenizer.start_token()};
  std::vector<double> weights(static_cast<size_t>(model.vocabulary()));
  for (int64_t i = 0; i < length; ++i) {
    const std::span<const float> logits = decoder.feed(written.back());
    double total = 0.0;
    const float top = *std::max_element(logits.begin(), logits.end());
    for (size_t token = 0; token < weights.size(); ++token)
      total += weights[token] = std::exp(static_cast<double>(logits[token] - top) / kTemperature);
    double dart = total * tril::random_uniform({.seed = kSeed}, 0, static_cast<uint32_t>(i));
    size_t chosen = 0;
    while (chosen + 1 < weights.size() && (dart -= weights[chosen]) >= 0.0) ++chosen;
    written.push_back(static_cast<int32_t>(chosen));
  }
  written.erase(written.begin());
  return tokenizer.decode(written);
}

void run(const Arguments& arguments) {
  // The text as numbers: a token for each character that occurs, and batches of snippets from random places. The
  // targets are the inputs one character further on.
  tril::Text text = load(arguments.file);
  const tril::Tokenizer tokenizer = tril::Tokenizer::characters_of(text.bytes, text.name);
  std::printf("%s: %zu bytes, %lld different characters\n", text.name.c_str(), text.bytes.size(),
              static_cast<long long>(tokenizer.size()));
  const tril::Dataset data(std::move(text), tokenizer, /*val_fraction=*/0.0, kContext);

  const tril::GptConfig config{
      .vocabulary = tokenizer.size(), .context = kContext, .layers = 3, .heads = 4, .width = 64};
  tril::ParamStore store(tril::DType::f32, kSeed);
  const tril::Gpt model(store, config);
  store.freeze();
  tril::GradStore gradients(store);
  tril::AdamW optimizer(store, {});
  const tril::Schedule schedule{.lr = 3e-3, .min_lr = 3e-4, .warmup = 50, .steps = arguments.steps};
  std::printf("a model of %lld numbers, which at first can only guess: loss about %.2f\n\n",
              static_cast<long long>(store.count()), std::log(static_cast<double>(tokenizer.size())));

  tril::Context context({.seed = kSeed});
  tril::Tape tape(context);
  tape.bind(gradients.binding());
  std::vector<int32_t> inputs(kBatch * kContext), targets(inputs.size());
  double recent = 0.0;
  int64_t count = 0;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    data.batch(kSeed, step * kBatch, kBatch, kContext, inputs.data(), targets.data());
    context.set_step(step);
    gradients.reset();
    const Tensor loss = model.loss(tape.view({kBatch, kContext}, tril::DType::i32, inputs.data()),
                                   tape.view({kBatch, kContext}, tril::DType::i32, targets.data()));
    tape.backward(loss);
    recent += loss.item();
    ++count;
    tape.reset();
    const double norm = optimizer.norm(gradients, context.threads());
    optimizer.update(gradients, schedule.rate(step), tril::clip_scale(norm, 1.0), context.threads());

    if ((step + 1) % 100 == 0 || step == 0 || step + 1 == arguments.steps) {
      std::printf("step %5lld  loss %.3f\n", static_cast<long long>(step + 1), recent / static_cast<double>(count));
      (void)std::fflush(stdout);
      recent = 0.0;
      count = 0;
    }
  }
  std::printf("\nWhat it writes now:\n%s\n", write(model, tokenizer, 400).c_str());
}

}  // namespace

int main(int count, char** values) {
  try {
    run(parse(count, values));
    return 0;
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "03_char_gpt: %s\n", error.what());
    return 1;
  }
}
