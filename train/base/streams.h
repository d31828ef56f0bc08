// Writing to standard output and error, whatever they are: blocking or not (another process that shares a pipe may set
// that), slow, or never read. Any thread may call.
#pragma once

#include <string>
#include <string_view>

namespace tril {

// Writes the whole text, waiting as long as it takes. Returns 0 or the system's error number: EPIPE if the reader is
// gone, ECANCELED if a stop signal was caught (train/base/signals.h) and the reader takes nothing more.
[[nodiscard]] int write_all(int descriptor, std::string_view text);

// Waits up to so many milliseconds. Returns true if the descriptor can be written to, or has failed: the write tells.
[[nodiscard]] bool can_write(int descriptor, int milliseconds);

// The text as it may be written to this descriptor: for a terminal, without controls (train/base/utf8.h).
[[nodiscard]] std::string fit_for(int descriptor, std::string_view text);

}  // namespace tril
