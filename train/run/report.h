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

// A file that grows by whole lines. An unfinished last line, as a killed writer leaves it, is cut off. A line that
// cannot be written is lost; the first one costs a warning, and nothing else happens.
class LineFile {
 public:
  LineFile(const std::string& path, Log& log);
  void append(std::string_view line);
  // Opens the file at the path again, for when the open one is no longer there.
  void reopen();
  // Cuts off the lines at the end that tell of later steps and, unless `evaluated`, of this step's evaluation. Returns
  // how many seconds the run had taken, by the lines that are left.
  double forget_after(int64_t step, bool evaluated);

 private:
  void give_up(const std::string& what);
  void lose_line(const std::string& why);

  std::string path_;
  Log& log_;
  Descriptor file_;
  bool losing_ = false;  // and the warning has been given
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

  // For a run that resumes from this step: removes from log.jsonl what comes after it, as that will be told again
  // (LineFile::forget_after). The run's clock goes on from the lines that are left.
  void forget_after(int64_t step, bool evaluated) { seconds_before_ = file_.forget_after(step, evaluated); }
  // Opens log.jsonl again, in a folder that was made again.
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
  std::optional<double> validation_;  // the latest validation loss
  int64_t validated_ = 0;             // the step of that loss
  double seconds_a_step_ = 0;         // smoothed, from the second step on
  int64_t steps_timed_ = 0;
  bool begun_ = false;
  double seconds_before_ = 0;  // that earlier processes of this run took
  Clock::time_point start_ = Clock::now(), said_ = start_;
  bool said_anything_ = false;
};

}  // namespace tril
