// The built program as a process whose standard streams a test holds the other ends of.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "train/base/files.h"

namespace tril::test {

// Two connected descriptors: what is written to `write` is read from `read`.
struct Pipe {
  Descriptor read, write;
};

enum class Blocks { yes, no };

// Two pages, so that little fills it. (One that holds a single page counts as full once anything is in it.)
[[nodiscard]] inline Pipe make_pipe(Blocks blocks) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  REQUIRE(::fcntl(ends[1], F_SETPIPE_SZ, 8192) >= 0);
  for (const int end : ends)
    if (blocks == Blocks::no) REQUIRE(::fcntl(end, F_SETFL, O_NONBLOCK) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Whether there are no pseudo-terminals here, as where /dev/pts is not mounted; says so.
[[nodiscard]] inline bool lacks_terminals() {
  int master = -1, slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) {
    WARN("no pseudo-terminals here (/dev/pts): not checked");
    return true;
  }
  for (const int end : {master, slave}) ::close(end);
  return false;
}

// A terminal that changes nothing: the program writes to `write`, the person sees what comes out of `read`.
[[nodiscard]] inline Pipe make_terminal() {
  int master = -1, slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  termios mode{};
  REQUIRE(::tcgetattr(slave, &mode) == 0);
  ::cfmakeraw(&mode);
  REQUIRE(::tcsetattr(slave, TCSANOW, &mode) == 0);
  for (const int end : {master, slave}) REQUIRE(::fcntl(end, F_SETFD, FD_CLOEXEC) == 0);
  return {Descriptor(master), Descriptor(slave)};
}

// All that comes out until the other end is closed.
[[nodiscard]] inline std::string read_all(const Descriptor& from) {
  std::string all;
  std::array<char, 4096> part{};
  for (;;) {
    pollfd ready{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 60'000) <= 0) return all + "… and then nothing for a minute";
    const ssize_t got = ::read(from.get(), part.data(), part.size());
    if (got <= 0) return all;  // a terminal whose program is gone gives EIO
    all.append(part.data(), static_cast<size_t>(got));
  }
}

inline void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class Process {
 public:
  // Streams not given are the null device. They are closed here, as the program holds them.
  struct Streams {
    Descriptor in{}, out{}, err{};
  };
  Process(const std::vector<std::string>& arguments, Streams streams) {
    const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    std::vector<char*> argv{const_cast<char*>(TRIL_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    id_ = ::fork();
    REQUIRE(id_ >= 0);
    if (id_ > 0) return;
    const auto place = [&](const Descriptor& stream, int number) {
      ::dup2(stream.get() >= 0 ? stream.get() : null.get(), number);
    };
    place(streams.in, STDIN_FILENO);
    place(streams.out, STDOUT_FILENO);
    place(streams.err, STDERR_FILENO);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) (void)::signal(signal, SIG_DFL);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execv(TRIL_PROGRAM, argv.data());
    ::_exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!ended_) ::kill(id_, SIGKILL), (void)wait();
  }

  void send(int signal) const { REQUIRE(::kill(id_, signal) == 0); }
  // The exit code, or 128 and the number of the signal that ended it; -1 where it has not ended within 30 seconds.
  [[nodiscard]] int wait_briefly() {
    for (int i = 0; i < 3000; ++i, wait_ms(10))
      if (const auto code = reap(WNOHANG)) return *code;
    return -1;
  }
  int wait() { return *reap(0); }

 private:
  std::optional<int> reap(int options) {
    int status = 0;
    if (::waitpid(id_, &status, options) != id_) return std::nullopt;
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t id_ = -1;
  bool ended_ = false;
};

}  // namespace tril::test
