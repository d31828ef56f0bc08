// The fields of a TrainConfig as flags: a flag each, and for a switch one more that turns it off.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/cli/flags.h"
#include "train/model/config.h"

namespace tril::cli {

void add_field_flag(std::vector<Flag>& flags, const Field& field);

// What the command line says about a field; nothing where it is silent. Throws UsageError where it says both.
[[nodiscard]] std::optional<std::string> given_text(const Flags& flags, const Field& field);

}  // namespace tril::cli
