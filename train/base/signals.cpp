#include "train/base/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <initializer_list>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

#include "train/base/streams.h"

namespace tril {
namespace {

std::atomic<bool> catching = false;
std::atomic<int> caught_signal = 0;
std::atomic<const char*> notice = nullptr;

void ignore(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

// The stop signals that are not ignored: a shell that put us in the background, or a parent, may have set some to be
// ignored.
sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

[[noreturn]] void end_by(int signal, const sigset_t& set) {
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  (void)::raise(signal);
  ::_exit(128 + signal);
}

// Writes to standard error without the program's log, which belongs to another thread, and without allocating. It does
// not wait long, because a slow reader must not keep the next signal from being seen.
void say(std::string_view text) {
  constexpr int kPatienceMs = 100;
  if (!can_write(STDERR_FILENO, kPatienceMs)) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// A signal within half a second of the first counts as the same: a sender may signal the process and then its group.
void wait_for_signals(const sigset_t& set) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSame{500};
  constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 500'000'000};
  Clock::time_point first{};
  for (bool told = false;;) {
    const bool impatient = caught_signal != 0 && !told;
    const int signal = impatient ? ::sigtimedwait(&set, nullptr, &kPatience) : ::sigwaitinfo(&set, nullptr);
    if (signal < 0) {
      if (!impatient || errno != EAGAIN) continue;
      told = true;
      if (const char* const text = notice; text != nullptr) {
        if (::isatty(STDERR_FILENO) == 1) say("\r\x1b[K");  // the live line
        say(text);
      }
      continue;
    }
    if (!catching) end_by(signal, set);
    if (caught_signal == 0) {
      first = Clock::now();
      caught_signal = signal;
    } else if (Clock::now() - first >= kSame) {
      ::_exit(128 + signal);
    }
  }
}

}  // namespace

void ignore_write_signals() {
  ignore(SIGPIPE);
  ignore(SIGXFSZ);
}

void watch_stop_signals() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  try {
    std::thread([set] { wait_for_signals(set); }).detach();
    return;
  } catch (const std::system_error&) {  // too little memory to train anything: signals end the process
  } catch (const std::bad_alloc&) {}
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void catch_stop_signals(const char* text) {
  notice = text;
  catching = true;
}

int stop_signal() { return caught_signal; }

}  // namespace tril
