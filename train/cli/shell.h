// Commands as the user can paste them into a shell.
#pragma once

#include <string>
#include <string_view>

#include "train/base/utf8.h"

namespace tril::cli {

// A path as a shell takes it, in quotes where it needs them: '…', or $'…' (bash, zsh) with escapes for what cannot be
// shown.
[[nodiscard]] inline std::string shell_quoted(const std::string& path) {
  const bool plain =
      !path.empty() && path[0] != '-' &&
      path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@%") ==
          std::string::npos;
  if (plain) return path;
  const std::string whole = path[0] == '-' ? "./" + path : path, shown = printable(whole);
  if (shown == whole) {
    std::string quoted = "'";
    for (const char c : whole) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "$'";
  for (size_t at = 0; at < whole.size();) {
    const std::string_view bytes(&whole[at], static_cast<size_t>(decode_utf8(whole, at).length));
    const bool visible = printable(bytes) == bytes;
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      if (visible)
        quoted += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
      else
        quoted += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
    at += bytes.size();
  }
  return quoted + "'";
}

// How the user calls this program. Set once, at the start of main.
inline std::string program = "tril";

}  // namespace tril::cli
