// How results are written as JSON: one way for all commands.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tril::cli {

// On one line, or with `indent` blanks a level; no new line at the end. What is not UTF-8 becomes U+FFFD, and what
// would break a line or steer a terminal is escaped (train/base/json_text.h).
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace tril::cli
