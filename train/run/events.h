// What happens in a training run, as values: the terminal's lines and those of log.jsonl are made from them.
// Plain values; any thread may call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "train/model/config.h"

namespace tril {

// Losses are in nats a token. `step` is how many updates have been made.
struct StartEvent {
  int64_t parameters = 0;
  int threads = 0;
  TrainConfig config;
};
struct ResumeEvent {
  int64_t step = 0;
  int threads = 0;
  TrainConfig config;
};
struct StepEvent {
  int64_t step = 0;  // this one included
  double loss = 0, norm = 0, rate = 0;
  double tokens_a_second = 0;
};
struct EvalEvent {
  int64_t step = 0;
  std::optional<double> loss{}, best_loss{}, best_possible{};
  int64_t best_step = 0;
};
struct SampleEvent {
  int64_t step = 0;
  std::string text;  // UTF-8
};
struct BestEvent {  // the best model so far was evaluated again
  int64_t step = 0;
  std::optional<double> loss{}, was{};
};
struct ThreadsEvent {
  int64_t step = 0;
  int threads = 0;
};
struct StopEvent {
  int64_t step = 0;
  std::string_view reason;  // "done", "signal" or "not finite"
};
using Event =
    std::variant<StartEvent, ResumeEvent, StepEvent, EvalEvent, SampleEvent, BestEvent, ThreadsEvent, StopEvent>;

// A line of log.jsonl, without its line feed. `unit`: what a token is, "chars" or "bytes"; `seconds`: how long the run
// has taken so far; `time`: the time of day.
[[nodiscard]] std::string json_line(const Event& event, std::string_view unit, double seconds, std::string_view time);

}  // namespace tril
