// The figures of tril bench as a page, as JSON, and beside earlier ones. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "train/cli/bench_figures.h"
#include "train/model/config.h"

namespace tril::cli {

// What was measured.
struct BenchSubject {
  std::string preset, dtype;
  int threads = 0;
  TrainConfig config;
};

// Whether a field can be given to tril bench: the model's shape and the size of a step.
[[nodiscard]] bool is_benched(const Field& field);

// Figures of an earlier result in JSON.
struct EarlierFigures {
  double ms_per_step = 0, decoded_chars_per_s = 0;
};
// Throws if `json` is no result of tril bench, or one of another subject; `where` is the file's name.
[[nodiscard]] EarlierFigures read_earlier(const std::string& json, const std::string& where,
                                          const BenchSubject& subject);

[[nodiscard]] std::string to_json(const BenchSubject& subject, const BenchFigures& figures,
                                  const std::optional<EarlierFigures>& earlier);
[[nodiscard]] std::string to_text(const BenchSubject& subject, const BenchFigures& figures,
                                  const std::optional<EarlierFigures>& earlier);

}  // namespace tril::cli
