#include "train/cli/field_flags.h"

namespace tril::cli {
namespace {

bool is_switch(const Field& field) { return field.value.empty(); }

}  // namespace

void add_field_flag(std::vector<Flag>& flags, const Field& field) {
  const std::string name(field.name), group(field.group);
  flags.push_back({.name = name,
                   .help = std::string(field.help),
                   .value = std::string(field.value),
                   .fallback = field_text(TrainConfig{}, field),
                   .group = group});
  if (is_switch(field))
    flags.push_back({.name = cat("no-", name), .help = cat("The opposite of --", name, "."), .group = group});
}

std::optional<std::string> given_text(const Flags& flags, const Field& field) {
  const bool opposite = is_switch(field) && flags.given(cat("no-", field.name));
  if (flags.given(field.name)) {
    if (opposite) fail_usage(field.name, cat("--", field.name, " or --no-", field.name), "both");
    return flags.text(field.name);
  }
  if (opposite) return flags.on(cat("no-", field.name)) ? "false" : "true";
  return std::nullopt;
}

}  // namespace tril::cli
