// What signals do to a process that has something to save: a child, whose end and standard error are looked at.
#include "train/base/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "core/machine/parallel.h"
#include "support/catch.h"

namespace tril::test {
namespace {

using std::chrono::milliseconds;

struct End {
  int status;
  std::string said;
};

// Runs `body`, whose result is the child's exit code, in a child that catches stop signals.
End in_child(FunctionRef<int()> body) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) (void)::signal(signal, SIG_DFL);
    watch_stop_signals();
    catch_stop_signals("stopping\n");
    ::_exit(body());
  }
  ::close(pipe[1]);
  End end{};
  std::array<char, 256> part{};
  for (ssize_t count = 0; (count = ::read(pipe[0], part.data(), part.size())) > 0;)
    end.said.append(part.data(), static_cast<size_t>(count));
  ::close(pipe[0]);
  REQUIRE(::waitpid(child, &end.status, 0) == child);
  return end;
}

// Whether a signal was caught within ten seconds.
bool caught(int signal) {
  for (int i = 0; i < 1000 && stop_signal() == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  return stop_signal() == signal;
}

}  // namespace

TEST_CASE("signals: work that takes long to stop is spoken for, once") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const End end = in_child([&] {
      ::kill(::getpid(), signal);
      if (!caught(signal)) return 2;
      std::this_thread::sleep_for(milliseconds(1800));
      return 7;
    });
    CHECK(WIFEXITED(end.status));
    CHECK(WEXITSTATUS(end.status) == 7);
    CHECK(end.said == "stopping\n");
  }
}

TEST_CASE("signals: of work that stops soon nothing is said") {
  const End end = in_child([] {
    ::kill(::getpid(), SIGTERM);
    return caught(SIGTERM) ? 7 : 2;
  });
  CHECK(WEXITSTATUS(end.status) == 7);
  CHECK(end.said.empty());
}

TEST_CASE("signals: a second one ends the process, but for the same one sent twice") {
  const End end = in_child([] {
    ::kill(::getpid(), SIGTERM);
    if (!caught(SIGTERM)) return 2;
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(milliseconds(1200));
    ::kill(::getpid(), SIGINT);
    std::this_thread::sleep_for(milliseconds(10'000));
    return 7;
  });
  CHECK(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == 128 + SIGINT);
  CHECK(end.said == "stopping\n");
}

}  // namespace tril::test
