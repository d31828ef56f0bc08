// tril gradcheck: proves the gradients of every op and of whole models.
#include "core/gradcheck/gradcheck.h"

#include <spdlog/fmt/fmt.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "nn/gpt.h"
#include "train/base/json_text.h"
#include "train/base/utf8.h"
#include "train/cli/command.h"
#include "train/cli/flags.h"
#include "train/cli/output.h"

namespace tril::cli {
namespace {

constexpr const char* kModel = "gpt";

// One case of an op or model, by its number.
struct Case {
  int sample = 0;
  GradcheckResult result;
};

// What one row of the table is about.
struct Row {
  std::string name;
  std::vector<Case> cases{};
  double milliseconds = 0;

  [[nodiscard]] Verdict verdict() const {
    Verdict worst = Verdict::passed;
    for (const Case& one : cases) worst = std::max(worst, one.result.verdict());
    return worst;
  }
  [[nodiscard]] int64_t elements() const {
    int64_t total = 0;
    for (const Case& one : cases) total += one.result.elements();
    return total;
  }
  [[nodiscard]] int64_t all_elements() const {
    int64_t total = 0;
    for (const Case& one : cases)
      for (const InputCheck& input : one.result.inputs) total += input.skipped.empty() ? input.shape.count() : 0;
    return total;
  }
  [[nodiscard]] double worst() const {
    double most = 0;
    for (const Case& one : cases) most = std::max(most, one.result.worst());
    return most;
  }
  [[nodiscard]] double worst_f32() const {
    double most = 0;
    for (const Case& one : cases) most = std::max(most, one.result.worst_f32);
    return most;
  }
};

struct Plan {
  std::vector<std::string> names{};
  int sample = -1;  // -1: all
  GradcheckOptions options{};
};

// Models of two layers with dropout and a tied head. They differ in biases, the form of GELU, whether the text fills
// the context, heads of keys, and how far attention sees.
struct ModelCase {
  const char* label;
  bool bias;
  Gelu gelu;
  int64_t time;
  int64_t kv_heads = 0, window = 0;
};
constexpr std::array kModelCases = {
    ModelCase{"two layers, dropout, no biases, erf GELU", false, Gelu::erf, 5},
    ModelCase{"two layers, dropout, no biases, tanh GELU", false, Gelu::tanh, 4},
    ModelCase{"two layers, dropout, biases, erf GELU", true, Gelu::erf, 4},
    ModelCase{"two layers, dropout, biases, tanh GELU", true, Gelu::tanh, 5},
    ModelCase{"two layers, dropout, biases, erf GELU, one head of keys, window 3", true, Gelu::erf, 5, 1, 3},
};

// Makes weights larger than a new model's, so that no path is negligible.
void spread(const ParamStore& store, uint64_t seed) {
  for (const ParamInfo& param : store.params()) {
    const RandomKey key{.seed = seed, .step = 1, .stream = stream_of(param.name.data(), param.name.size())};
    for (int64_t i = 0; i < param.value.count(); ++i) {
      double& value = param.value.ptr<double>()[i];
      value = (param.decays() ? 0.0 : value) + 0.3 * random_normal(key, 0, static_cast<uint32_t>(i));
    }
  }
}

GradcheckResult check_model(const ModelCase& of, const GradcheckOptions& options) {
  constexpr int64_t kBatch = 2, kVocabulary = 7;
  ParamStore store(DType::f64, options.seed);
  const Gpt model(store, {.vocabulary = kVocabulary,
                          .context = 5,
                          .layers = 2,
                          .heads = 2,
                          .width = 6,
                          .kv_heads = of.kv_heads,
                          .window = of.window,
                          .dropout = 0.2,
                          .bias = of.bias,
                          .gelu = of.gelu});
  store.freeze();
  spread(store, options.seed);
  GradStore gradients(store);
  std::vector<CheckedParameter> parameters;
  for (const ParamInfo& param : store.params()) parameters.push_back({param.name, param.value});

  const auto count = static_cast<size_t>(kBatch * of.time);
  std::vector<int32_t> ids(count), targets(count);
  const auto draw = [&](uint32_t index) {
    return static_cast<int32_t>(random_uniform({.seed = options.seed, .step = 0, .stream = 1}, 0, index) * kVocabulary);
  };
  for (size_t i = 0; i < count; ++i) {
    ids[i] = draw(static_cast<uint32_t>(i));
    targets[i] = draw(static_cast<uint32_t>(count + i));
  }
  targets[1] = -1;  // one that does not count
  const auto loss = [&](Tape& tape) {
    const Shape shape{kBatch, of.time};
    return model.loss(tape.constant<int32_t>(shape, ids), tape.constant<int32_t>(shape, targets));
  };
  GradcheckOptions limited = options;
  limited.most_elements = 36;
  GradcheckResult result = gradcheck(kModel, parameters, gradients.binding(), loss, limited);
  result.label = of.label;
  return result;
}

Row check_row(const std::string& name, const Plan& plan) {
  Row row{.name = name};
  const auto start = std::chrono::steady_clock::now();
  const OpInfo* const op = find_op(name);
  const std::vector<Sample> samples = op == nullptr ? std::vector<Sample>{} : op->samples();
  const auto count = static_cast<int>(op == nullptr ? kModelCases.size() : samples.size());
  if (plan.sample >= count) fail_usage("--sample", cat("0 to ", count - 1, " for ", name), cat(plan.sample));
  for (int i = 0; i < count; ++i) {
    if (plan.sample >= 0 && plan.sample != i) continue;
    GradcheckOptions options = plan.options;
    options.command = cat("tril gradcheck ", name, " --sample ", i);
    const auto at = static_cast<size_t>(i);
    row.cases.push_back(
        {i, op == nullptr ? check_model(kModelCases[at], options) : gradcheck(name, samples[at], options)});
  }
  row.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return row;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "infinite";
  return fmt::format("{:.1e}", value);
}

std::string right(std::string text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

constexpr size_t kNameWidth = 16;

std::string header() {
  return cat("op", std::string(kNameWidth - 2, ' '), right("samples", 8), right("elements", 10),
             right("worst error", 13), right("f32 to f64", 12), right("ms", 7), "  verdict\n");
}

std::string line_of(const Row& row) {
  const std::string name = row.name + std::string(kNameWidth - std::min(kNameWidth, row.name.size()), ' ');
  const bool has_f32 = row.name != kModel;
  return cat(name, right(cat(row.cases.size()), 8), right(cat(row.elements()), 10),
             right(short_number(row.worst()), 13), right(has_f32 ? short_number(row.worst_f32()) : "-", 12),
             right(cat(static_cast<int64_t>(std::lround(row.milliseconds))), 7), "  ", name_of(row.verdict()), "\n");
}

// Tells what was left out and why, so that nothing is skipped silently.
std::string omissions(const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (const Row& row : rows)
    for (const Case& one : row.cases)
      for (const InputCheck& input : one.result.inputs) {
        const std::string line = cat("  ", row.name, ", ", input.name, ": ", input.skipped);
        if (!input.skipped.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
      }
  std::string text = lines.empty() ? "" : "\nNot varied:\n";
  for (const std::string& line : lines) text += line + "\n";
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.elements() < row.all_elements(); }))
    text += "\nOf large inputs, a part of the elements was varied, chosen at random by the seed.\n";
  return text;
}

// The numbers of the one element that the user asked for, whether right or wrong.
std::string element_asked_for(const Plan& plan, const std::vector<Row>& rows) {
  std::string text;
  if (plan.options.element.empty()) return text;
  for (const InputCheck& input : rows.at(0).cases.at(0).result.inputs)
    for (const ElementCheck& check : input.elements)
      text += cat("\n", input.name, " ", index_text(input.shape, check.element), ": ", name_of(check.verdict), "\n",
                  describe(check));
  return text;
}

nlohmann::ordered_json to_json(const Row& row) {
  nlohmann::ordered_json json = {{"op", row.name},
                                 {"samples", row.cases.size()},
                                 {"elements", row.elements()},
                                 {"elements_in_all", row.all_elements()},
                                 {"worst_error", row.worst()},
                                 {"worst_f32", row.worst_f32()},
                                 {"ms", row.milliseconds},
                                 {"verdict", row.verdict() == Verdict::failed ? "failed" : name_of(row.verdict())},
                                 {"findings", nlohmann::ordered_json::array()},
                                 {"not_varied", nlohmann::ordered_json::array()}};
  for (const Case& one : row.cases) {
    for (const Finding& finding : one.result.findings)
      json["findings"].push_back({{"sample", one.sample},
                                  {"label", one.result.label},
                                  {"check", name_of(finding.check)},
                                  {"verdict", finding.verdict == Verdict::failed ? "failed" : "inconclusive"},
                                  {"input", finding.input},
                                  {"diagnosis", finding.diagnosis},
                                  {"report", finding.report}});
    for (const InputCheck& input : one.result.inputs)
      if (!input.skipped.empty())
        json["not_varied"].push_back({{"sample", one.sample}, {"input", input.input}, {"reason", input.skipped}});
  }
  return json;
}

std::vector<int64_t> parse_index(const std::string& text) {
  std::vector<int64_t> index;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    index.push_back(parse_integer("--element", text.substr(at, comma - at), 0, int64_t{1} << 48));
    at = comma + 1;
  }
  return index;
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (const OpInfo* op : all_ops()) names.push_back(op->name);
  names.push_back(kModel);
  return names;
}

std::string about() {
  std::string list;
  for (const std::string_view name : all_names()) list += cat(list.empty() ? "" : ", ", name);
  return cat(
      "Proves gradients: backward against differences of forward in f64, and that backward writes, adds, repeats and "
      "scales as it should. Without a name all are checked: ",
      list, ", which is whole models.");
}

Plan plan_of(const Flags& flags) {
  Plan plan;
  const std::vector<std::string_view> known = all_names();
  for (const std::string& name : flags.arguments()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_usage("gradcheck", "the name of an op", printable(name, 60),
                 did_you_mean(name, known, "tril gradcheck --help lists them"));
    plan.names.push_back(name);
  }
  if (plan.names.empty()) plan.names.assign(known.begin(), known.end());
  if (flags.given("sample")) plan.sample = static_cast<int>(flags.integer("sample", 0, 1 << 20));
  if (flags.given("input")) plan.options.input = static_cast<int>(flags.integer("input", 0, 1 << 20));
  if (flags.given("element")) plan.options.element = parse_index(flags.text("element"));
  plan.options.seed = static_cast<uint64_t>(flags.integer("seed", 0, INT64_MAX));
  plan.options.threads = static_cast<int>(flags.integer("threads", 1, 1024));
  if (plan.sample >= 0 && plan.names.size() != 1) fail_usage("--sample", "one op", cat(plan.names.size(), " of them"));
  if (plan.options.input >= 0 && plan.sample < 0)
    fail_usage("--input", "the sample it belongs to", "none", "add --sample");
  if (!plan.options.element.empty() && plan.options.input < 0)
    fail_usage("--element", "the input it belongs to", "none", "add --input");
  return plan;
}

std::string conclusion(const Plan& plan, const std::vector<Row>& rows) {
  int64_t failed = 0, unclear = 0;
  for (const Row& row : rows) {
    failed += row.verdict() == Verdict::failed;
    unclear += row.verdict() == Verdict::inconclusive;
  }
  if (failed + unclear == 0) return plan.sample < 0 ? "\nEvery gradient is right.\n" : "\nWhat was checked is right.\n";
  return cat("\n", failed, " of ", rows.size(), " failed, ", unclear, " inconclusive.\n");
}

int print(const Plan& plan, bool json) {
  std::vector<Row> rows;
  Verdict worst = Verdict::passed;
  for (const std::string& name : plan.names) {
    rows.push_back(check_row(name, plan));
    worst = std::max(worst, rows.back().verdict());
    if (!json) write_output(cat(rows.size() == 1 ? header() : "", line_of(rows.back())));
  }
  if (json) {
    nlohmann::ordered_json all = {{"seed", plan.options.seed},
                                  {"threads", plan.options.threads},
                                  {"passed", worst == Verdict::passed},
                                  {"ops", nlohmann::ordered_json::array()}};
    for (const Row& row : rows) all["ops"].push_back(to_json(row));
    write_output(json_text(all, 2) + "\n");
  } else {
    std::string text = plan.options.input < 0 ? omissions(rows) : element_asked_for(plan, rows);
    for (const Row& row : rows)
      for (const Case& one : row.cases)
        if (const std::string report = one.result.report(); !report.empty()) text += cat("\n", report);
    write_output(text + conclusion(plan, rows));
  }
  return worst == Verdict::passed ? 0 : 1;
}

}  // namespace

int run_gradcheck(int argc, const char* const* argv) {
  Flags flags({.name = "gradcheck",
               .usage = "[OP...] [--sample N [--input K [--element I,J,...]]]",
               .about = about(),
               .most_arguments = 1000,
               .examples = "Examples:\n  tril gradcheck\n  tril gradcheck attention\n"
                           "  tril gradcheck attention --sample 3 --input 0 --element 0,1,2\n"},
              {{.name = "sample", .help = "Check this sample alone.", .value = "N"},
               {.name = "input", .help = "Vary this operand, or parameter, alone.", .value = "K"},
               {.name = "element", .help = "Vary this element of it alone, and print its numbers.", .value = "I,J,..."},
               {.name = "seed", .help = "Of values, cotangents and dropout.", .value = "S", .fallback = "1"},
               {.name = "threads", .help = "Compared with one thread, bit for bit.", .value = "N", .fallback = "3"},
               {.name = "json", .help = "Print one JSON object."}});
  if (!flags.parse(argc, argv)) return 0;
  const Plan plan = plan_of(flags);
  if (plan.options.input < 0) return print(plan, flags.on("json"));
  try {
    return print(plan, flags.on("json"));
  } catch (const OutputError&) { throw; } catch (const Error& error) {  // the input or element named is not there
    throw UsageError(error.what());
  }
}

}  // namespace tril::cli
