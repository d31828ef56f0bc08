// tril info: what is in a model, or what this program and this machine are.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/machine/onednn.h"
#include "core/matmul/bf16_gemm.h"
#include "train/base/cpu_name.h"
#include "train/base/json_text.h"
#include "train/base/log.h"
#include "train/base/threads.h"
#include "train/base/utf8.h"
#include "train/cli/command.h"
#include "train/cli/flags.h"
#include "train/cli/output.h"
#include "train/data/corpus.h"
#include "train/model/model_file.h"
#include "train/run/report.h"

namespace tril::cli {
namespace {

using Json = nlohmann::ordered_json;

Flags info_flags() {
  return Flags({.name = "info",
                .usage = "[RUN] [flags]",
                .about = "Shows what is in a model, in a run's folder or a file; or, with none, what this program and "
                         "this machine are.",
                .most_arguments = 1,
                .examples = "Examples:\n"
                            "  tril info\n"
                            "  tril info runs/stories --json\n"},
               {{.name = "json", .help = "Print one JSON object."}});
}

Json about_program() {
  Json json;
  json["version"] = TRIL_VERSION;
  json["build"] = TRIL_BUILD_TYPE;
  json["compiler"] = cat(TRIL_COMPILER, " ", __VERSION__);
  json["cpu"] = cpu_name();
  json["processors"] = processors();
  json["threads"] = default_threads();
  json["isa"] = cpu_isa();
  json["level"] = name_of(cpu().level);
  if (cpu().level != cpu().machine) json["machine_level"] = name_of(cpu().machine);
  const Bf16Unit unit = bf16_unit();
  json["bf16"] = unit == Bf16Unit::tiles ? "AMX" : unit == Bf16Unit::avx512 ? "AVX-512" : "none, widened to f32";
  json["onednn"] = onednn_version();
  return json;
}

Json about_tensors(const ParamStore& params) {
  Json tensors = Json::array();
  for (const ParamInfo& param : params.params()) {
    Json tensor;
    tensor["name"] = param.name;
    tensor["shape"] = Json::array();
    for (const int64_t extent : param.value.shape.dims()) tensor["shape"].push_back(extent);
    tensor["decays"] = param.decays();
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Gives paths if they are known, as for a model in its run's folder, else names.
Json trained_on(const TextIdentity& text, const std::string& folder) {
  if (text.names.empty()) return "the built-in stories";
  std::vector<std::string> paths;
  try {
    paths = known_paths(text, folder);
  } catch (const Error&) {}  // a damaged file of paths does not matter here
  return paths.empty() ? text.names : paths;
}

Json about_model(const Model& model, const std::string& folder) {
  Json json;
  json["file"] = model.where;
  json["parameters"] = model.params->count();
  json["vocabulary"] = model.tokenizer.size();
  if (model.tokenizer.kind() == TokenKind::kChar) {
    std::string all;
    for (int32_t token = 0; token < model.tokenizer.size(); ++token) model.tokenizer.decode(token, all);
    json["characters"] = all;
  }
  const ModelState& state = model.state;
  if (state.known) json["step"] = state.step;
  // If another program has changed the weights, their losses are not known.
  if (model.as_written && !std::isnan(state.loss)) json["loss"] = state.loss;
  if (model.as_written && !std::isnan(state.best_loss)) {
    json["best_loss"] = state.best_loss;
    json["best_step"] = state.best_step;
  }
  if (state.known) json["trained_on"] = trained_on(state.text, folder);
  json["config"] = Json::parse(config_to_json(model.training));
  json["tensors"] = about_tensors(*model.params);
  return json;
}

// One "name  value" a line; objects and lists of objects become lines of their own.
void append_lines(std::string& page, const Json& json, bool of_bytes) {
  constexpr size_t kNameWidth = 16;
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      append_lines(page, value, of_bytes);
      continue;
    }
    if (name == "tensors") {
      for (const Json& tensor : value)
        page += cat("  ", tensor["name"].get<std::string>(), " ", tensor["shape"].dump(),
                    tensor["decays"].get<bool>() ? "" : ", never decays", "\n");
      continue;
    }
    const bool is_loss = name == "loss" || name == "best_loss";
    const std::string text = is_loss
                                 ? cat(value.dump(), of_bytes ? " nats a byte" : " nats", ", of the validation part")
                             : value.is_string() ? printable(value.get<std::string>())
                                                 : printable(json_text(value));
    page += cat(name, std::string(kNameWidth - std::min(name.size(), kNameWidth - 1), ' '), text, "\n");
  }
}

}  // namespace

int run_info(int argc, const char* const* argv) {
  Flags flags = info_flags();
  if (!flags.parse(argc, argv)) return 0;
  Json json;
  bool of_bytes = false;
  if (flags.arguments().empty()) {
    json = about_program();
  } else {
    const Model model = load_model(flags.arguments()[0]);
    of_bytes = model.training.tokens == TokenKind::kByte;
    Log log;
    for (const std::string& line : model.warnings) log.warn(line);
    json = about_model(model, folder_of_model(flags.arguments()[0]));
  }
  std::string page;
  if (flags.on("json")) {
    page = json_text(json, 2) + "\n";
  } else {
    append_lines(page, json, of_bytes);
  }
  write_output(page);
  return 0;
}

}  // namespace tril::cli
