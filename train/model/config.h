// How a model is made and trained. One table of fields drives the flags, the configuration file, the help, the log and
// the checkpoint, so that a number has one name everywhere. A TrainConfig is a plain value; any thread may call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/ops.h"
#include "train/data/tokenizer.h"

namespace tril {

// The type that matrix products are computed in; kAuto: the one that is fast on this processor.
enum class Precision : uint8_t { kAuto, kF32, kBf16 };
[[nodiscard]] std::string_view precision_name(Precision precision);
enum class OptimizerKind : uint8_t { adamw, sgd };
[[nodiscard]] std::string_view optimizer_name(OptimizerKind kind);

// The values here are the preset `small`: nanoGPT's published configuration for a CPU.
struct TrainConfig {
  TokenKind tokens = TokenKind::kChar;
  double val_fraction = 0.1;

  int64_t layers = 4, heads = 4, width = 128, context = 64;
  int64_t kv_heads = 0, window = 0;
  double dropout = 0.0;
  bool bias = false;
  Gelu gelu = Gelu::erf;

  int64_t batch = 12, accumulate = 1, steps = 2000;
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 100;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.99, momentum = 0.9, weight_decay = 0.1, clip = 1.0;
  static constexpr int64_t kAutoThreads = -1;
  int64_t seed = 1337, threads = kAutoThreads;  // nanoGPT's seed
  Precision dtype = Precision::kF32;
  bool recompute = false;

  int64_t eval_every = 250, eval_tokens = 0, sample_length = 120, log_every = 10;

  bool operator==(const TrainConfig&) const = default;
};

struct Field {
  using Member =
      std::variant<int64_t TrainConfig::*, double TrainConfig::*, bool TrainConfig::*, TokenKind TrainConfig::*,
                   Gelu TrainConfig::*, Precision TrainConfig::*, OptimizerKind TrainConfig::*>;
  std::string_view name;
  std::string_view value;  // stands for the value in the help, such as N
  std::string_view group;
  std::string_view help;
  Member member;
  double least = 0, most = 0;  // of numbers
  bool part_of_model = false;  // fixed once a model exists: its shape, its tokens, the split of its text
  bool or_auto = false;        // "auto", which is -1, is a value too
  bool newer = false;          // not in models of older versions, which have its default
};
[[nodiscard]] std::span<const Field> fields();
// Throws UsageError with the nearest name; `where` is what the name was found in.
[[nodiscard]] const Field& field_named(std::string_view name, std::string_view where);

[[nodiscard]] std::string field_text(const TrainConfig& config, const Field& field);
// Checks one value and sets it; throws UsageError naming the field.
void set_field(TrainConfig& config, const Field& field, std::string_view text);

// Throws UsageError if the fields do not fit together.
void check_config(const TrainConfig& config);

// nanoGPT's two published character models. Throws UsageError with the nearest name.
[[nodiscard]] TrainConfig preset(std::string_view name);
[[nodiscard]] std::span<const std::string_view> preset_names();

// One JSON object with every field, in the table's order.
[[nodiscard]] std::string config_to_json(const TrainConfig& config, bool one_line = false);
// Reads a JSON object with any of the fields, which replace those of `base`. A "preset" in it replaces all of `base`
// first. `complete`: every field that is part of a model must be there. Throws UsageError; `where` begins it.
[[nodiscard]] TrainConfig config_from_json(std::string_view json, std::string_view where, TrainConfig base,
                                           bool complete = false);

}  // namespace tril
