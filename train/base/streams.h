// Standard output and error as the program finds them: blocking or not (a pipe may be set so by whoever holds its other
// end), slow, or never read. Any thread may call.
#pragma once

#include <string>
#include <string_view>

namespace tril {

// Writes all of it, waiting as long as it takes. What comes back is 0 or the system's error number: EPIPE, where the
// reader is gone; ECANCELED, where a stop signal was caught (train/base/signals.h) and the reader takes nothing more.
[[nodiscard]] int write_all(int descriptor, std::string_view text);

// Whether the descriptor can be written to within so many milliseconds, or has failed, which writing will tell.
[[nodiscard]] bool can_write(int descriptor, int milliseconds);

// The text as it may go to this descriptor: where that is a terminal, nothing that would steer it (train/base/utf8.h).
[[nodiscard]] std::string fit_for(int descriptor, std::string_view text);

}  // namespace tril
