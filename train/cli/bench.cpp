// tril bench: how fast the real training step and decoding are on this machine, compared with its matrix products.
#include "train/base/file_kind.h"
#include "train/base/log.h"
#include "train/base/threads.h"
#include "train/base/utf8.h"
#include "train/cli/bench_report.h"
#include "train/cli/command.h"
#include "train/cli/field_flags.h"
#include "train/cli/output.h"
#include "train/data/corpus.h"
#include "train/data/text.h"
#include "train/model/precision.h"
#include "train/run/memory.h"

namespace tril::cli {
namespace {

Flags bench_flags() {
  std::vector<Flag> flags = {
      {.name = "preset", .help = "The model: small or baby.", .value = "NAME", .fallback = "small"},
      {.name = "dtype", .help = "What products read: f32, bf16 or auto.", .value = "TYPE", .fallback = "f32"},
      {.name = "threads", .help = "Threads; 0 for as many as this process may run on.", .value = "N", .fallback = "0"},
      {.name = "json", .help = "Print one JSON object."},
      {.name = "compare", .help = "An earlier result, from --json, to stand beside.", .value = "FILE"}};
  for (const Field& field : fields())
    if (is_benched(field)) add_field_flag(flags, field);
  return Flags(
      {.name = "bench",
       .usage = "[flags]",
       .about = "Times the real training step (batch, forward, backward, clipping, update), op by op, and decoding of "
                "one stream. Figures are medians. Run it on a quiet machine.",
       .examples = "Examples:\n"
                   "  tril bench --preset baby\n"
                   "  tril bench --width 256 --heads 8 --json >before.json\n"
                   "  tril bench --width 256 --heads 8 --compare before.json\n"},
      std::move(flags));
}

BenchSubject subject_of(const Flags& flags) {
  const auto asked = static_cast<int>(flags.integer("threads", 0, 1024));
  BenchSubject subject{.preset = flags.text("preset"),
                       .dtype = {},
                       .threads = asked == 0 ? default_threads() : asked,
                       .config = preset(flags.text("preset"))};
  set_field(subject.config, field_named("dtype", "bench"), flags.text("dtype"));
  for (const Field& field : fields())
    if (const auto text = is_benched(field) ? given_text(flags, field) : std::nullopt)
      set_field(subject.config, field, *text);
  check_config(subject.config);
  return subject;
}

}  // namespace

int run_bench(int argc, const char* const* argv) {
  Flags flags = bench_flags();
  if (!flags.parse(argc, argv)) return 0;
  BenchSubject subject = subject_of(flags);
  const TrainConfig& config = subject.config;

  Corpus corpus = load_corpus({}, {.tokens = config.tokens});
  const Tokenizer tokenizer = Tokenizer::make(config.tokens, corpus.text.bytes, corpus.text.name);
  const Split split = config.val_fraction;
  const int64_t most = split.train_size(static_cast<int64_t>(corpus.text.bytes.size())) - 1;
  if (config.context > most)
    fail_usage("--context", cat("at most ", most, ", which the built-in stories are long enough for"),
               cat(config.context));
  const Dataset data(std::move(corpus.text), tokenizer, split, config.context);
  corpus.stories.reset();
  const ChosenPrecision chosen = choose_precision(config.dtype);
  expect_memory(config, tokenizer.size(), chosen.dtype);
  if (!chosen.warning.empty()) Log().warn(chosen.warning);
  Context context({.threads = subject.threads, .seed = static_cast<uint64_t>(config.seed), .precision = chosen.dtype});
  subject.threads = context.threads();
  subject.dtype = name_of(chosen.dtype);
  std::optional<EarlierFigures> earlier;
  if (flags.given("compare")) {
    constexpr int64_t kLongest = 1 << 20;
    const std::string path = flags.text("compare");
    if (path.empty()) fail_usage("--compare", "the name of a file", "an empty one");
    const std::string json = read_json_file(path, kLongest, "a result of tril bench --json");
    earlier = read_earlier(json, printable(path), subject);
  }
  Model model = make_model(config, tokenizer);
  const BenchFigures figures = measure(context, model, data);
  write_output(flags.on("json") ? to_json(subject, figures, earlier) : to_text(subject, figures, earlier));
  return 0;
}

}  // namespace tril::cli
