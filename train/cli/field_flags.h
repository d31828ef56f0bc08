// The fields of a TrainConfig as flags: one flag for each field, and for a switch a second one that turns it off.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/cli/flags.h"
#include "train/model/config.h"

namespace tril::cli {

void add_field_flag(std::vector<Flag>& flags, const Field& field);

// The value that the command line gives a field, if it gives one. Throws UsageError if it turns a switch on and off.
[[nodiscard]] std::optional<std::string> given_text(const Flags& flags, const Field& field);

}  // namespace tril::cli
