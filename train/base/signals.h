// Ctrl-C and its relatives, for the programs. A thread waits for them, and all others have them blocked, because no
// handler may run on a thread that multiplies matrices: oneDNN's sgemm (2.6 and 3.7) turns the stack pointer to a
// buffer of its own, behind which the kernel would then lay the handler's frame.
#pragma once

namespace tril {

// SIGPIPE and SIGXFSZ become errors of the write that met them. For the start of main.
void ignore_write_signals();

// For the start of main, before there are other threads: until the next call a signal ends the process, as ever.
void watch_stop_signals();

// From now on the first SIGINT, SIGTERM or SIGHUP asks the work to stop and save, and another that comes half a second
// later or more ends the process at once. For when there is something to save. `notice`, a line with its end,
// in memory that stays, goes to standard error where the work has not ended after that half second.
void catch_stop_signals(const char* notice = nullptr);

// The first signal caught, or 0. Long loops look at it, each step, window or token. The exit code is 128 more.
[[nodiscard]] int stop_signal();

}  // namespace tril
