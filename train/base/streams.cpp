#include "train/base/streams.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "train/base/signals.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

// Returns false if a stop signal was caught and the reader has taken nothing for a while since. Signals are blocked on
// this thread, so it has to ask for them.
bool wait_to_write(int descriptor) {
  constexpr int kLookMs = 100, kLooksAfterStop = 3;
  for (int looks = 0; looks < kLooksAfterStop;) {
    if (can_write(descriptor, kLookMs)) return true;
    if (stop_signal() != 0) ++looks;
  }
  return false;
}

}  // namespace

bool can_write(int descriptor, int milliseconds) {
  pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
  const int result = ::poll(&ready, 1, milliseconds);
  return result > 0 || (result < 0 && errno != EINTR);
}

int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    if (!wait_to_write(descriptor)) return ECANCELED;
    // At most PIPE_BUF: a pipe that is ready takes so much without blocking. A thread that blocks would see no signal.
    const ssize_t done = ::write(descriptor, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (done > 0) {
      text.remove_prefix(static_cast<size_t>(done));
    } else if (done < 0 && errno == EAGAIN) {
      ::poll(nullptr, 0, 1);  // another writer was faster
    } else if (done == 0 || errno != EINTR) {
      return done < 0 ? errno : EIO;
    }
  }
  return 0;
}

std::string fit_for(int descriptor, std::string_view text) {
  return ::isatty(descriptor) == 1 ? without_controls(text) : std::string(text);
}

}  // namespace tril
