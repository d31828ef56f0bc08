// What a training run says while it runs: to people through a Log, and to programs as lines of JSON in log.jsonl.
// One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/base/files.h"
#include "train/base/log.h"
#include "train/run/events.h"
#include "train/run/trainer.h"

namespace tril {

// A decimal number with so many digits behind the point, whatever the locale.
// "0:07", "12:34" or "1:02:03".
[[nodiscard]] std::string duration_text(double seconds);

// A file that grows by whole lines: an end without a new line, as a killed writer leaves it, is cut off. Where it
// cannot be written, that costs the line, one warning in all, and nothing else.
class LineFile {
 public:
  LineFile(const std::string& path, Log& log);
  void append(std::string_view line);
  // For when the file is no longer at its path.
  void reopen();
  // Cuts off the last lines that tell of later steps, and, unless this one was evaluated, of its evaluation. Returns
  // the seconds that the run had taken by what is left.
  double forget_after(int64_t step, bool evaluated);

 private:
  void give_up(const std::string& what);
  void lose_line(const std::string& why);

  std::string path_;
  Log& log_;
  Descriptor file_;
  bool losing_ = false;  // and has said so
};

class Report {
 public:
  struct Options {
    std::string log_path;
    int64_t steps = 0, log_every = 10, tokens_a_step = 0;
    std::string unit = "characters";        // what a token is
    std::optional<double> best_possible{};  // of any model, in nats, where that is known
  };
  Report(Options options, Log& log);

  // A run that goes on from this step, evaluated or not: what log.jsonl tells of what comes after, comes again.
  // Its clock goes on from what is left.
  void forget_after(int64_t step, bool evaluated) { seconds_before_ = file_.forget_after(step, evaluated); }
  // In a folder that was made anew.
  void reopen() { file_.reopen(); }
  // A line of log.jsonl, with the seconds that the run has taken so far in all its processes together, and the time of
  // day in UTC.
  void event(const Event& event);
  void step(const StepResult& result, double seconds);
  void evaluating(int64_t step);
  void evaluation(const ModelState& state);
  void sample(int64_t step, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::string progress() const;
  [[nodiscard]] bool due(Clock::duration interval);

  Options options_;
  Log& log_;
  LineFile file_;
  StepResult last_;
  std::optional<double> validation_;  // the latest loss,
  int64_t validated_ = 0;             // of this step
  double seconds_a_step_ = 0;         // smoothed, from the second step on
  int64_t steps_timed_ = 0;
  bool begun_ = false;
  double seconds_before_ = 0;  // in other processes
  Clock::time_point start_ = Clock::now(), said_ = start_;
  bool said_anything_ = false;
};

}  // namespace tril
