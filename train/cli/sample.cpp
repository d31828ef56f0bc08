// tril sample: lets a model write.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/matmul/bf16_gemm.h"
#include "train/base/files.h"
#include "train/base/json_text.h"
#include "train/base/log.h"
#include "train/base/signals.h"
#include "train/base/threads.h"
#include "train/base/utf8.h"
#include "train/cli/command.h"
#include "train/cli/flags.h"
#include "train/cli/output.h"
#include "train/model/model_file.h"
#include "train/model/sampler.h"

namespace tril::cli {
namespace {

constexpr int64_t kLongest = int64_t{1} << 40, kLongestPrompt = int64_t{1} << 26;

Flags sample_flags() {
  return Flags(
      {.name = "sample",
       .usage = "RUN [flags]",
       .about =
           "Lets a model, in a run's folder or a file, go on from a prompt. The prompt and its continuation come out, "
           "then a new line. Without a prompt, what is piped in at once is one (--prompt - waits for it); else the "
           "model begins as after a new line. Several samples are parted by a line of four dashes. Sample number i of "
           "a seed is the same however many are made. Past the context the model sees between half of it and all.",
       .most_arguments = 1,
       .examples = "Examples:\n"
                   "  tril sample runs/stories --prompt \"Once \" --length 500 --temperature 0.8\n"
                   "  tril sample runs/stories --count 3 --seed 7 --stop END\n"
                   "  printf 'Once ' | tril sample runs/stories --temperature 0\n",
       .of_more = "a prompt is given by --prompt TEXT"},
      {{.name = "prompt", .help = "What to go on from; - reads standard input.", .value = "TEXT"},
       {.name = "prompt-file", .help = "The same from a file; - reads standard input.", .value = "FILE"},
       {.name = "length",
        .help = "Characters to write (bytes, for a model of bytes).",
        .value = "N",
        .fallback = "500"},
       {.name = "temperature",
        .help = "Under 1 more careful, over 1 bolder; 0 takes the likeliest.",
        .value = "T",
        .fallback = "0.8"},
       {.name = "top-k", .help = "Only of the K likeliest; 0 for all.", .value = "K", .fallback = "0"},
       {.name = "top-p",
        .help = "Only of the likeliest that make up P of the probability.",
        .value = "P",
        .fallback = "1"},
       {.name = "seed", .help = "Another seed, another text.", .value = "S", .fallback = "1"},
       {.name = "count", .help = "How many samples.", .value = "N", .fallback = "1"},
       {.name = "stop", .help = "End before this text.", .value = "TEXT"},
       {.name = "no-prompt", .help = "Leave the prompt out of what is printed."},
       {.name = "dtype",
        .help =
            "What weights, keys and values are kept as: f32; bf16, half as much to read and a little less exact; or "
            "auto, bf16 where the processor multiplies it.",
        .value = "TYPE",
        .fallback = "f32"},
       {.name = "threads",
        .help = "Threads to compute with; 0 for as many as this process may use. The text does not depend on it.",
        .value = "N",
        .fallback = "0"},
       {.name = "json", .help = "Print one JSON object a sample, a line each: prompt, text."}});
}

// Whether a prompt was piped in, or redirected from a file. A pipe that stays silent counts as no prompt, so that the
// program does not wait for it.
bool has_piped_prompt(Log& log) {
  constexpr int kPatienceMs = 50;
  struct stat input {};
  if (::fstat(STDIN_FILENO, &input) != 0) return false;
  if (S_ISREG(input.st_mode)) return true;
  if (!S_ISFIFO(input.st_mode) && !S_ISSOCK(input.st_mode)) return false;
  pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  int found;
  do { found = ::poll(&ready, 1, kPatienceMs); } while (found < 0 && errno == EINTR);
  if (found == 1) return true;
  log.note("standard input is a pipe that is silent, so there is no prompt; --prompt - waits for it");
  return false;
}

std::string prompt_text(const Flags& flags, TokenKind tokens, Log& log) {
  if (flags.given("prompt") && flags.text("prompt") != "-") return flags.text("prompt");
  const std::string path = flags.given("prompt") ? "-" : flags.text("prompt-file");
  if (path.empty() && !has_piped_prompt(log)) return {};
  std::string text =
      path.empty() || path == "-" ? read_standard_input(kLongestPrompt) : read_file(path, kLongestPrompt);
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (tokens == TokenKind::kChar && text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

struct Job {
  uint32_t count;
  int threads;
  DType weights;
  bool json;
  SamplerOptions sampler;
  WriteOptions write;
};

DType parse_weights(const std::string& text) {
  if (text == "bf16" || (text == "auto" && bf16_unit() != Bf16Unit::none)) return DType::bf16;
  if (text != "f32" && text != "auto") fail_usage("--dtype", "f32, bf16 or auto", cat('\'', printable(text, 60), '\''));
  return DType::f32;
}

Job read_job(const Flags& flags) {
  constexpr double kHottest = 1e6;
  constexpr int64_t kMostSamples = 1'000'000, kMostThreads = 1024;
  if (flags.given("prompt") && flags.given("prompt-file"))
    fail_usage("--prompt", "one of --prompt and --prompt-file", "both");
  if (flags.given("prompt-file") && flags.text("prompt-file").empty())
    fail_usage("--prompt-file", "the name of a file", "none");
  Job job{};
  job.count = static_cast<uint32_t>(flags.integer("count", 1, kMostSamples));
  job.threads = static_cast<int>(flags.integer("threads", 0, kMostThreads));
  job.weights = parse_weights(flags.text("dtype"));
  job.json = flags.on("json");
  job.sampler.temperature = flags.number("temperature", 0, kHottest);
  job.sampler.top_k = flags.integer("top-k", 0, kLongest);
  job.sampler.top_p = flags.number("top-p", 0, 1);
  if (job.sampler.top_p == 0)
    fail_usage("--top-p", "more than 0, at most 1", "0", "--temperature 0 always takes the likeliest");
  job.sampler.seed = static_cast<uint64_t>(flags.integer("seed", 0, std::numeric_limits<int64_t>::max()));
  job.write.length = flags.integer("length", 0, kLongest);
  job.write.stop = flags.text("stop");
  job.write.echo = !job.json && !flags.on("no-prompt");
  return job;
}

// On a terminal text is written as it comes; elsewhere by 4 KiB, or when some of it has waited.
class Output {
 public:
  void add(std::string_view piece) {
    constexpr size_t kPiece = 4096;
    constexpr std::chrono::milliseconds kWait{50};
    pending_ += piece;
    // A carriage return is held back: the next character tells whether it ends a line or steers the terminal.
    if (watched_ ? !pending_.ends_with('\r') : pending_.size() >= kPiece || Clock::now() - flushed_ >= kWait) flush();
  }
  void flush() {
    if (!pending_.empty()) {
      write_output(pending_);
      in_line_ = pending_.back() != '\n';
    }
    pending_.clear();
    flushed_ = Clock::now();
  }
  // So that a message does not follow an unfinished line of text.
  void end_line() {
    flush();
    if (in_line_) add("\n");
    flush();
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool watched_ = ::isatty(STDOUT_FILENO) == 1;
  Clock::time_point flushed_{};  // long ago, so that the first text is written at once
  std::string pending_;
  bool in_line_ = false;
};

std::string as_json(std::string_view prompt, std::string_view text) {
  return json_text({{"prompt", prompt}, {"text", text}}) + "\n";
}

// Prints texts that are made together one after the other: the first as it is made, while the others wait.
class Pages {
 public:
  Pages(int64_t count, const std::string& prompt, bool json, Output& output)
      : prompt_(prompt), json_(json), output_(output), waiting_(static_cast<size_t>(count)), ended_(waiting_.size()) {}

  void add(const Piece& piece) {
    const auto i = static_cast<size_t>(piece.text);
    if (i == turn_ && !json_) {
      output_.add(piece.characters);
    } else {
      waiting_[i] += piece.characters;
    }
    ended_[i] = piece.last;
    // After a signal the current text is ended, and the others are left out.
    while (turn_ < waiting_.size() && ended_[turn_]) {
      if (json_) output_.add(as_json(prompt_, waiting_[turn_]));
      if (!json_) output_.add("\n");
      turn_ = stop_signal() == 0 ? turn_ + 1 : waiting_.size();
      if (turn_ < waiting_.size() && !json_) output_.add(kBetween + waiting_[turn_]);
    }
  }
  inline static const std::string kBetween = "----\n";

 private:
  const std::string& prompt_;
  bool json_;
  Output& output_;
  std::vector<std::string> waiting_;
  std::vector<bool> ended_;
  size_t turn_ = 0;
};

}  // namespace

int run_sample(int argc, const char* const* argv) {
  Flags flags = sample_flags();
  if (!flags.parse(argc, argv)) return 0;
  if (flags.arguments().empty()) fail_usage("tril sample", "a run's folder or a model file", "none");
  const Job job = read_job(flags);
  Log log;
  const Model model = load_model(flags.arguments()[0]);
  for (const std::string& line : model.warnings) log.warn(line);
  if (is_untrained(model)) log.warn("the model has not been trained yet (step 0): it writes at random");
  const std::string prompt = prompt_text(flags, model.tokenizer.kind(), log);
  // A stop text that the model cannot write would never stop it.
  static_cast<void>(model.tokenizer.encode(job.write.stop, "--stop"));
  const int64_t context = model.lm->context();
  std::vector<int32_t> tokens = model.tokenizer.encode(prompt, "prompt");
  if (static_cast<int64_t>(tokens.size()) > context)
    log.note(cat("the prompt has ", tokens.size(), " tokens, the model's context holds ", context,
                 ": it sees the last ", context));
  WriteOptions write = job.write;
  if (tokens.empty()) {
    tokens.push_back(model.tokenizer.start_token());
    write.echo = false;
  }

  const int64_t together = texts_together(*model.lm, job.count, write.length);
  Decoder decoder(*model.lm, job.threads > 0 ? job.threads : default_threads(), together, job.weights);
  Sampler sampler(job.sampler, model.lm->vocabulary());
  Output output;
  catch_stop_signals();
  while (write.stream < job.count && stop_signal() == 0) {
    if (write.stream > 0 && !job.json) output.add(Pages::kBetween);
    const int64_t count = std::min<int64_t>(together, job.count - write.stream);
    Pages pages(count, prompt, job.json, output);
    try {
      write_texts(decoder, sampler, model.tokenizer, tokens, count, write, [&](const Piece& piece) {
        pages.add(piece);
        return stop_signal() == 0;
      });
    } catch (const OutputError&) { throw; } catch (const Error& error) {
      output.end_line();
      throw Error(cat(printable(flags.arguments()[0]), ": ", error.what()));
    }
    write.stream += static_cast<uint32_t>(count);
  }
  output.flush();
  constexpr int kSignalBase = 128;
  return stop_signal() == 0 ? 0 : kSignalBase + stop_signal();
}

}  // namespace tril::cli
