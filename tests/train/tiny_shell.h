// A shell with a text to train on, and what tests of stopped runs ask of a run's folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "support/catch.h"
#include "train/program.h"
#include "train/tiny_model.h"

namespace tril::test {

// Flags with which a mistake would show: accumulation, dropout, and evaluations in between.
inline const std::string kDemanding =
    " --layers 1 --heads 2 --width 8 --context 8 --batch 2 --accumulate 2 --dropout 0.2 --beta2 0.95 --warmup 2 "
    "--lr 1e-2 --sample-length 5 ";

inline const std::string kPlain = " --layers 1 --heads 2 --width 8 --context 8 --batch 4 --warmup 2 --lr 1e-2 ";

// `start` trains in the background, `await TEXT FILE` waits until a text is in a file. Shells let processes in the
// background ignore SIGINT; env restores the default.
inline const std::string kStartAndAwait =
    "start() { env --default-signal=INT \"$TRIL\" train \"$@\" & pid=$!; }\n"
    "await() { for i in $(seq 3000); do grep -q \"$1\" \"$2\" 2>/dev/null && return; sleep 0.01; done; }\n";

struct TinyShell : Shell {
  TinyShell() { put("book.txt", tiny_text()); }
  [[nodiscard]] Outcome train(const std::string& rest) const { return run("tril train book.txt" + kDemanding + rest); }
  [[nodiscard]] int64_t step(const std::string& file) const {
    return nlohmann::json::parse(run("tril info --json " + file).out).at("step").get<int64_t>();
  }
  // What a run's log tells of its evaluations, but for when they were.
  [[nodiscard]] std::string evaluations(const std::string& run_folder) const {
    return run("grep -E '\"event\":\"(eval|sample)\"' " + run_folder +
               "/log.jsonl | sed 's/,\"seconds\":[0-9.]*,\"time\":\"[0-9TZ:-]*\"}$/}/'")
        .out;
  }
  // How many optimizer's states a run's folder holds.
  [[nodiscard]] std::string states(const std::string& run_folder) const {
    return run("ls " + run_folder + " | grep -c optimizer").out;
  }
};

// The same with a model that trains in no time.
struct PlainShell : Shell {
  PlainShell() { put("book.txt", tiny_text()); }
  [[nodiscard]] Outcome train(const std::string& rest) const { return run("tril train book.txt" + kPlain + rest); }
};

// Wrong usage: exit code 2, one line that says so, and no output.
inline void check_usage_error(const Outcome& outcome, const std::string& text) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(count_lines(outcome.err) == 1);
  CHECK_THAT(outcome.err, contains("error: ") && contains(text));
}

inline void check_failure(const Outcome& outcome, const std::string& text) {
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, contains("error: ") && contains(text));
}

}  // namespace tril::test
