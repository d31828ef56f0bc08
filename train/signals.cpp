#include "train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <initializer_list>

namespace tril {
namespace {

// A handler can only tell the program of a signal by a global; this is the one, written here alone.
volatile sig_atomic_t caught_signal = 0;

void note(int signal) {
  if (caught_signal != 0) ::_exit(128 + signal);
  caught_signal = signal;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void ignore_write_signals() {
  handle(SIGPIPE, SIG_IGN);
  handle(SIGXFSZ, SIG_IGN);
}

void catch_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // A shell that put us in the background, or a parent, may have made us deaf to it, and meant it.
    const bool ignored = ::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!ignored) handle(signal, note);
  }
}

int stop_signal() { return caught_signal; }

}  // namespace tril
