#include "train/model/config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "train/base/json_text.h"
#include "train/base/usage.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

constexpr double kMany = 4e9;     // steps are counted in 32 bits
constexpr double kMost = 0x1p53;  // every reader of JSON holds integers up to this exactly
constexpr std::string_view kText = "Text", kModel = "Model", kTraining = "Training", kWatching = "Watching";

using C = TrainConfig;
constexpr std::array kFields = {
    Field{"tokens", "KIND", kText, "What one token is: char, a Unicode character, or byte.", &C::tokens, 0, 0, true},
    Field{"val-fraction", "X", kText, "The last part of the text, kept for validation; 0 for none.", &C::val_fraction,
          0, 0.99, true},

    Field{"layers", "N", kModel, "Transformer blocks.", &C::layers, 1, 4096, true},
    Field{"heads", "N", kModel, "Attention heads; a number that divides the width.", &C::heads, 1, 65536, true},
    Field{"width", "N", kModel, "Width of the residual stream.", &C::width, 1, 65536, true},
    Field{"context", "N", kModel, "The most tokens the model sees at once.", &C::context, 1, 1 << 20, true},
    Field{"kv-heads", "N", kModel, "Heads of keys and values, shared by the attention heads; 0 for one each.",
          &C::kv_heads, 0, 65536, true, false, true},
    Field{"window", "N", kModel, "Tokens that attention looks back at, its own included; 0 for all.", &C::window, 0,
          1 << 20, true, false, true},
    Field{"dropout", "P", kModel, "Probability to drop embeddings, attention weights and branches in training.",
          &C::dropout, 0, 0.99},
    Field{"bias", "", kModel, "Give linear layers and norms a bias.", &C::bias, 0, 0, true},
    Field{"gelu", "FORM", kModel, "erf, nanoGPT's, or tanh, GPT-2's.", &C::gelu, 0, 0, true},

    Field{"batch", "N", kTraining, "Samples computed together.", &C::batch, 1, 1e6},
    Field{"accumulate", "N", kTraining, "Batches a step; a step learns from batch x accumulate samples.",
          &C::accumulate, 1, 1e6},
    Field{"steps", "N", kTraining, "Steps in all.", &C::steps, 1, kMany},
    Field{"lr", "X", kTraining, "The highest learning rate.", &C::lr, 0, 1e30},
    Field{"min-lr", "X", kTraining, "The learning rate that cosine decay ends at.", &C::min_lr, 0, 1e30},
    Field{"warmup", "N", kTraining, "Steps over which the learning rate rises; half of all steps at most.", &C::warmup,
          0, kMany},
    Field{"optimizer", "NAME", kTraining, "adamw, or sgd: gradient descent with momentum.", &C::optimizer, 0, 0, false,
          false, true},
    Field{"beta1", "X", kTraining, "AdamW's decay of the mean gradient.", &C::beta1, 0, 0.999999},
    Field{"beta2", "X", kTraining, "AdamW's decay of the mean squared gradient.", &C::beta2, 0, 0.999999},
    Field{"momentum", "X", kTraining, "SGD's decay of the sum of gradients.", &C::momentum, 0, 0.999999, false, false,
          true},
    Field{"weight-decay", "X", kTraining, "Of matrices and embeddings; biases and norms never decay.", &C::weight_decay,
          0, 1e3},
    Field{"clip", "X", kTraining, "Largest norm of the whole gradient; 0 for no clipping.", &C::clip, 0, 1e9},
    Field{"seed", "N", kTraining, "Of initial values, batches and dropout.", &C::seed, 0, kMost},
    Field{
        "threads", "N", kTraining,
        "Threads to compute with; auto finds the fastest number by timing steps, 0 is as many as this process may use.",
        &C::threads, 0, 1024, false, true},
    Field{"dtype", "TYPE", kTraining,
          "f32; bf16, for mixed precision; or auto: bf16 where the processor multiplies it.", &C::dtype},
    Field{"recompute", "", kTraining, "Make each block's inner tensors again in backward: less memory, more time.",
          &C::recompute},

    Field{"eval-every", "N", kWatching, "Steps between two evaluations, each followed by saving.", &C::eval_every, 1,
          kMany},
    Field{"eval-tokens", "N", kWatching,
          "Evaluate on about so many tokens, spread over the validation part; 0 for all.", &C::eval_tokens, 0, kMost},
    Field{"sample-length", "N", kWatching,
          "Characters of the sample shown after each evaluation (bytes, of a model of bytes); 0 for none.",
          &C::sample_length, 0, 1e6},
    Field{"log-every", "N", kWatching, "Steps between two lines of log.jsonl.", &C::log_every, 1, kMany},
};

struct Setting {
  std::string_view field, value;
};
constexpr std::array kPresetNames = {std::string_view("small"), std::string_view("baby")};
// How `baby` differs from `small`.
constexpr std::array kBaby = {Setting{"layers", "6"},    Setting{"heads", "6"},  Setting{"width", "384"},
                              Setting{"context", "256"}, Setting{"batch", "64"}, Setting{"dropout", "0.2"},
                              Setting{"steps", "5000"}};

// The names of a field's choices, in the order of the enumeration.
template <class Choice>
constexpr std::array<std::string_view, 0> kNames;
template <>
constexpr std::array kNames<Gelu> = {std::string_view("erf"), std::string_view("tanh")};
template <>
constexpr std::array kNames<Precision> = {std::string_view("auto"), std::string_view("f32"), std::string_view("bf16")};
template <>
constexpr std::array kNames<OptimizerKind> = {std::string_view("adamw"), std::string_view("sgd")};

template <class Choice>
std::string_view name_of_choice(Choice choice) {
  return kNames<Choice>[static_cast<size_t>(choice)];
}

template <class Choice>
Choice parse_choice(std::string_view where, std::string_view text) {
  constexpr auto& names = kNames<Choice>;
  std::string expected;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return static_cast<Choice>(i);
    expected += cat(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  }
  fail_usage(where, expected, cat('\'', printable(text, 60), '\''));
}

template <class Value>
constexpr bool is_choice =
    std::is_same_v<Value, Gelu> || std::is_same_v<Value, Precision> || std::is_same_v<Value, OptimizerKind>;

int64_t parse_whole(const Field& field, std::string_view text) {
  const auto least = static_cast<int64_t>(field.least), most = static_cast<int64_t>(field.most);
  if (!field.or_auto) return parse_integer(field.name, text, least, most);
  if (text == "auto") return TrainConfig::kAutoThreads;
  try {
    return parse_integer(field.name, text, least, most);
  } catch (const UsageError&) {
    fail_usage(field.name, cat("auto, or a whole number from ", least, " to ", most),
               cat('\'', printable(text, 60), '\''));
  }
}

TokenKind parse_tokens(std::string_view where, std::string_view text) {
  try {
    return parse_token_kind(text, where);
  } catch (const Error& error) { throw UsageError(error.what()); }
}

std::vector<std::string_view> field_names() {
  std::vector<std::string_view> names;
  for (const Field& field : kFields) names.push_back(field.name);
  return names;
}

// A member of the file's one object. `text` is its value; a number keeps its digits as they are written.
struct Member {
  std::string name, text;
  std::string_view kind;  // as JSON calls it
};

// Collects the members while nlohmann parses. In a tree, the last of two members with one name would hide the other,
// and numbers would lose digits.
class MemberReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  MemberReader(std::string_view where, std::vector<Member>& members) : where_(where), members_(members) {}
  bool null() override { return add("null", ""); }
  bool boolean(bool value) override { return add("boolean", value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add("number", cat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add("number", cat(value)); }
  bool number_float(number_float_t, const string_t& text) override { return add("number", text); }
  bool string(string_t& text) override { return add("string", text); }
  bool binary(binary_t&) override { return add("binary", ""); }
  bool start_object(size_t) override { return add("object", "", 1); }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t) override { return add("array", "", 1); }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    if (depth_ > 1) return true;
    if (!seen_.insert(name).second) fail_usage(where_, "each name once", cat(printable(name, 60), " twice"));
    members_.push_back({name, "", ""});
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception& error) override {
    const bool is_syntax = dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr;
    fail_usage(where_, "a configuration in JSON",
               is_syntax ? cat("something else at byte ", at) : "numbers out of range");
  }
  [[nodiscard]] std::string_view kind() const { return kind_; }  // of the whole file

 private:
  bool add(std::string_view kind, std::string_view text, int deeper = 0) {
    if (depth_ == 0) kind_ = kind;
    if (depth_ == 1 && kind_ == "object") {
      members_.back().kind = kind;
      members_.back().text = text;
    }
    depth_ += deeper;
    return true;
  }

  std::string_view where_, kind_;
  std::vector<Member>& members_;
  std::set<std::string> seen_;
  int depth_ = 0;
};

std::vector<Member> parse_members(std::string_view json, std::string_view where) {
  std::vector<Member> members;
  MemberReader reader(where, members);
  static_cast<void>(nlohmann::json::sax_parse(json, &reader));
  if (reader.kind() != "object") fail_usage(where, "a JSON object", reader.kind());
  return members;
}

const std::string& text_of(const Member& member) {
  if (member.kind != "number" && member.kind != "boolean" && member.kind != "string")
    fail_usage(member.name, "a number, true, false or a text", member.kind);
  return member.text;
}

}  // namespace

std::span<const Field> fields() { return kFields; }

std::string_view precision_name(Precision precision) { return name_of_choice(precision); }

std::string_view optimizer_name(OptimizerKind kind) { return name_of_choice(kind); }

const Field& field_named(std::string_view name, std::string_view where) {
  const auto found =
      std::find_if(kFields.begin(), kFields.end(), [&](const Field& field) { return field.name == name; });
  if (found == kFields.end())
    fail_usage(where, "the names of fields", printable(name, 60),
               did_you_mean(name, field_names(), "tril train --help lists them"));
  return *found;
}

std::string field_text(const TrainConfig& config, const Field& field) {
  return std::visit(
      [&](const auto member) -> std::string {
        const auto value = config.*member;
        using Value = std::remove_const_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) return value ? "true" : "false";
        if constexpr (std::is_same_v<Value, TokenKind>) return std::string(token_kind_name(value));
        if constexpr (is_choice<Value>) return std::string(name_of_choice(value));
        if constexpr (std::is_same_v<Value, int64_t>) return field.or_auto && value < 0 ? "auto" : cat(value);
        if constexpr (std::is_same_v<Value, double>) return cat(value);
      },
      field.member);
}

void set_field(TrainConfig& config, const Field& field, std::string_view text) {
  std::visit(
      [&](const auto member) {
        auto& value = config.*member;
        using Value = std::remove_reference_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) value = parse_switch(field.name, text);
        if constexpr (std::is_same_v<Value, TokenKind>) value = parse_tokens(field.name, text);
        if constexpr (is_choice<Value>) value = parse_choice<Value>(field.name, text);
        if constexpr (std::is_same_v<Value, int64_t>) value = parse_whole(field, text);
        if constexpr (std::is_same_v<Value, double>) value = parse_number(field.name, text, field.least, field.most);
      },
      field.member);
}

void check_config(const TrainConfig& config) {
  if (config.width % config.heads != 0)
    fail_usage("heads", cat("a number that divides the width ", config.width), cat(config.heads));
  if (config.kv_heads != 0 && config.heads % config.kv_heads != 0)
    fail_usage("kv-heads", cat("a number that divides the ", config.heads, " heads, or 0 for as many"),
               cat(config.kv_heads));
  if (config.min_lr > config.lr)
    fail_usage("min-lr", cat("at most lr, ", config.lr), cat(config.min_lr),
               "give a smaller --min-lr or a larger --lr");
}

TrainConfig preset(std::string_view name) {
  TrainConfig config;
  if (name == "small") return config;
  if (name != "baby") {
    fail_usage("preset", "small or baby", cat('\'', printable(name, 60), '\''), did_you_mean(name, kPresetNames));
  }
  for (const auto& [field, value] : kBaby) set_field(config, field_named(field, "preset"), value);
  return config;
}

std::span<const std::string_view> preset_names() { return kPresetNames; }

std::string config_to_json(const TrainConfig& config, bool one_line) {
  auto json = nlohmann::ordered_json::object();
  for (const Field& field : kFields) {
    const std::string text = field_text(config, field);
    const bool quoted = text == "auto" || std::visit(
                                              [](auto member) {
                                                using Value = std::remove_reference_t<decltype(C{}.*member)>;
                                                return is_choice<Value> || std::is_same_v<Value, TokenKind>;
                                              },
                                              field.member);
    json[std::string(field.name)] = quoted ? nlohmann::ordered_json(text) : nlohmann::ordered_json::parse(text);
  }
  return one_line ? json_text(json) : json_text(json, 2) + "\n";
}

TrainConfig config_from_json(std::string_view json, std::string_view where, TrainConfig base, bool complete) {
  const std::vector<Member> members = parse_members(json, where);
  const auto find = [&](std::string_view name) {
    return std::find_if(members.begin(), members.end(), [&](const Member& member) { return member.name == name; });
  };
  if (const auto named = find("preset"); named != members.end()) {
    try {
      base = preset(text_of(*named));
    } catch (const UsageError& error) { throw UsageError(cat(where, ": ", error.what())); }
  }
  for (const Member& member : members) {
    if (member.name == "preset") continue;
    const Field& field = field_named(member.name, where);
    try {
      set_field(base, field, text_of(member));
    } catch (const UsageError& error) { throw UsageError(cat(where, ": ", error.what())); }
  }
  for (const Field& field : kFields)
    if (complete && field.part_of_model && !field.newer && find(field.name) == members.end())
      fail_usage(where, field.name, "none");
  return base;
}

}  // namespace tril
