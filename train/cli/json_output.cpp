#include "train/cli/json_output.h"

#include <nlohmann/json.hpp>

#include "train/base/json_text.h"

namespace tril::cli {

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return with_escaped_breaks(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace tril::cli
