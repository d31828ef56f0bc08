// Commands as the user can paste them into a shell. Pure functions.
#pragma once

#include <string>

#include "train/utf8.h"

namespace tril::cli {

// A path as a shell takes it, in quotes where it needs them; what cannot be shown is escaped.
[[nodiscard]] inline std::string shell_quoted(const std::string& path) {
  const bool plain =
      !path.empty() && path[0] != '-' &&
      path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@%") ==
          std::string::npos;
  if (plain) return path;
  std::string quoted = path[0] == '-' ? "'./" : "'";
  for (const char c : printable(path)) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace tril::cli
