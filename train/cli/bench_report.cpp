#include "train/cli/bench_report.h"
#include "train/base/json_text.h"

#include <spdlog/fmt/fmt.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "train/base/utf8.h"
#include "train/run/report.h"

namespace tril::cli {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

Json shape_json(const TrainConfig& config) {
  Json shape = Json::object();
  for (const Field& field : fields())
    if (is_benched(field)) shape[std::string(field.name)] = field_text(config, field);
  return shape;
}

double seconds_of(const std::vector<OpTime>& ops) {
  double all = 0;
  for (const OpTime& op : ops) all += op.seconds();
  return all;
}

Json ops_json(const std::vector<OpTime>& ops) {
  const double all = seconds_of(ops);
  Json rows = Json::array();
  for (const OpTime& op : ops)
    rows.push_back({{"op", op.name()},
                    {"calls", op.calls},
                    {"forward_ms", 1e3 * op.forward},
                    {"backward_ms", 1e3 * op.backward},
                    {"share", rounded(op.seconds() / all, 0.001)},
                    {"gflops", 1e-9 * op.flops / op.seconds()},
                    {"gb_per_s", 1e-9 * op.bytes / op.seconds()}});
  return rows;
}

std::string rate_text(const OpTime& op) {
  if (op.flops > 0) return fmt::format("{:.0f} GFLOP/s", 1e-9 * op.flops / op.seconds());
  return op.bytes > 0 ? fmt::format("{:.0f} GB/s", 1e-9 * op.bytes / op.seconds()) : "";
}

std::string ops_text(const std::vector<OpTime>& ops) {
  const double all = seconds_of(ops);
  std::vector<std::array<std::string, 6>> rows = {
      {"op and its operands", "calls", "forward ms", "backward ms", "share", "rate"}};
  for (const OpTime& op : ops)
    rows.push_back({op.name(), op.calls > 0 ? cat(op.calls) : "", fmt::format("{:.2f}", 1e3 * op.forward),
                    op.backward > 0 ? fmt::format("{:.2f}", 1e3 * op.backward) : "",
                    fmt::format("{:.1f} %", 100 * op.seconds() / all), rate_text(op)});
  size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, row[0].size());
  std::string text;
  for (const auto& row : rows)
    text += fmt::format("{:<{}}{:>7}{:>12}{:>13}{:>9}{}{}\n", row[0], widest, row[1], row[2], row[3], row[4],
                        row[5].empty() ? "" : "  ", row[5]);
  return text;
}

std::string subject_text(const BenchSubject& subject) {
  std::string text = cat("preset ", subject.preset);
  const TrainConfig plain = preset(subject.preset);
  for (const Field& field : fields())
    if (is_benched(field) && field_text(plain, field) != field_text(subject.config, field))
      text += cat(", ", field.name, " ", field_text(subject.config, field));
  return cat(text, ", ", subject.dtype, ", ", subject.threads, subject.threads == 1 ? " thread\n" : " threads\n");
}

std::string change_text(double now, double before, int digits, const char* unit) {
  return fmt::format(", was {:.{}f}{} (x {:.2f})", before, digits, unit, now / before);
}

}  // namespace

bool is_benched(const Field& field) {
  return field.group == "Model" || field.name == "batch" || field.name == "accumulate" || field.name == "recompute";
}

EarlierFigures read_earlier(const std::string& json, const std::string& where, const BenchSubject& subject) {
  const Json earlier = Json::parse(json, nullptr, false);
  EarlierFigures figures;
  try {
    const auto same = [&](const char* name, const auto& mine, const auto& theirs) {
      if (mine != theirs)
        fail(where, cat("a result for ", name, " ", mine), cat(name, " ", printable(cat(theirs), 60)));
    };
    same("preset", subject.preset, earlier.at("preset").get<std::string>());
    same("dtype", subject.dtype, earlier.at("dtype").get<std::string>());
    same("threads", cat(subject.threads), earlier.at("threads").dump());
    for (const Field& field : fields())
      if (is_benched(field)) {
        const std::string name(field.name);
        // A result that is older than a field had the preset's value of it.
        const std::string known = field_text(preset(subject.preset), field);
        const std::string theirs = earlier.at("shape").value(name, known);
        same(name.c_str(), field_text(subject.config, field), theirs);
      }
    figures = {earlier.at("train").at("ms_per_step").get<double>(),
               earlier.at("decode").at("chars_per_s").get<double>()};
  } catch (const nlohmann::json::exception&) { fail(where, "a result of tril bench --json", "something else"); }
  if (!(figures.ms_per_step > 0 && figures.decoded_chars_per_s > 0)) fail(where, "figures above 0", "others");
  return figures;
}

std::string to_json(const BenchSubject& subject, const BenchFigures& figures,
                    const std::optional<EarlierFigures>& earlier) {
  Json report = {{"preset", subject.preset},
                 {"dtype", subject.dtype},
                 {"threads", subject.threads},
                 {"shape", shape_json(subject.config)},
                 {"train",
                  {{"ms_per_step", 1e3 * figures.step_s},
                   {"ms_min", 1e3 * figures.least_step_s},
                   {"chars_per_s", std::round(figures.chars_per_s)},
                   {"gflops", figures.gflops},
                   {"peak_gflops", figures.peak_gflops},
                   {"share_of_peak", rounded(figures.share_of_peak(), 0.001)},
                   {"floor_ms", 1e3 * figures.floor_s()},
                   {"allocations_per_step", figures.allocations}}},
                 {"decode",
                  {{"chars_per_s", std::round(figures.decoded_chars_per_s)},
                   {"streams", figures.streams},
                   {"together_chars_per_s", std::round(figures.together_chars_per_s)}}},
                 {"peak_rss_mib", figures.peak_rss_mib},
                 {"read_gb_per_s", figures.read_gb_per_s},
                 {"ops", ops_json(figures.ops)}};
  if (earlier)
    report["compared"] = {{"ms_per_step", 1e3 * figures.step_s / earlier->ms_per_step},
                          {"decode_chars_per_s", figures.decoded_chars_per_s / earlier->decoded_chars_per_s}};
  return json_text(report) + "\n";
}

std::string to_text(const BenchSubject& subject, const BenchFigures& figures,
                    const std::optional<EarlierFigures>& earlier) {
  const double ms = 1e3 * figures.step_s;
  const auto was = [&](double now, double EarlierFigures::*before, int digits, const char* unit) {
    return earlier ? change_text(now, (*earlier).*before, digits, unit) : std::string();
  };
  return subject_text(subject) +
         fmt::format(
             "training  {:.2f} ms a step (best {:.2f}){}, {:.0f} characters/s\n"
             "          {:.0f} GFLOP/s, {:.0f} % of the {:.0f} that large matrix products reach; at those the step "
             "would "
             "take {:.2f} ms\n",
             ms, 1e3 * figures.least_step_s, was(ms, &EarlierFigures::ms_per_step, 2, " ms"), figures.chars_per_s,
             figures.gflops, 100 * figures.share_of_peak(), figures.peak_gflops, 1e3 * figures.floor_s()) +
         fmt::format("decoding  {:.0f} characters/s, one stream{}; {:.0f} with {} together\n",
                     figures.decoded_chars_per_s,
                     was(figures.decoded_chars_per_s, &EarlierFigures::decoded_chars_per_s, 0, ""),
                     figures.together_chars_per_s, figures.streams) +
         fmt::format("memory    {} MiB at most; {} allocations a step; large arrays are read at {:.0f} GB/s\n\n",
                     figures.peak_rss_mib, figures.allocations, figures.read_gb_per_s) +
         ops_text(figures.ops);
}

}  // namespace tril::cli
