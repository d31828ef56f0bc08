#include "train/run/events.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "train/base/json_text.h"

namespace tril {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& json, const char* name, const std::optional<double>& number) {
  if (number) json[name] = *number;
}

Json config_of(const TrainConfig& config) { return Json::parse(config_to_json(config, true)); }

struct Members {
  std::string_view unit;

  [[nodiscard]] Json operator()(const StartEvent& event) const {
    return {{"event", "start"},
            {"version", TRIL_VERSION},
            {"parameters", event.parameters},
            {"threads", event.threads},
            {"config", config_of(event.config)}};
  }
  [[nodiscard]] Json operator()(const ResumeEvent& event) const {
    return {{"event", "resume"}, {"step", event.step}, {"threads", event.threads}, {"config", config_of(event.config)}};
  }
  [[nodiscard]] Json operator()(const StepEvent& event) const {
    return {{"event", "step"},    {"step", event.step}, {"loss", event.loss},
            {"norm", event.norm}, {"lr", event.rate},   {cat(unit, "_per_s"), std::llround(event.tokens_a_second)}};
  }
  [[nodiscard]] Json operator()(const EvalEvent& event) const {
    Json json = {{"event", "eval"}, {"step", event.step}};
    put(json, "loss", event.loss);
    put(json, "best_loss", event.best_loss);
    put(json, "best_possible", event.best_possible);
    return json;
  }
  [[nodiscard]] Json operator()(const SampleEvent& event) const {
    return {{"event", "sample"}, {"step", event.step}, {"text", event.text}};
  }
  [[nodiscard]] Json operator()(const BestEvent& event) const {
    Json json = {{"event", "best"}, {"step", event.step}};
    put(json, "loss", event.loss);
    put(json, "was", event.was);
    return json;
  }
  [[nodiscard]] Json operator()(const ThreadsEvent& event) const {
    return {{"event", "threads"}, {"step", event.step}, {"threads", event.threads}};
  }
  [[nodiscard]] Json operator()(const StopEvent& event) const {
    return {{"event", "stop"}, {"step", event.step}, {"reason", event.reason}};
  }
};

}  // namespace

std::string json_line(const Event& event, std::string_view unit, double seconds, std::string_view time) {
  constexpr double kThousand = 1000;
  Json json = std::visit(Members{unit}, event);
  json["seconds"] = std::round(seconds * kThousand) / kThousand;
  json["time"] = time;
  return json_text(json);
}

}  // namespace tril
