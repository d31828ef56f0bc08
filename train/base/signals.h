// Stop signals, such as Ctrl-C, for the programs. One thread waits for them and all others block them, because no
// handler may run on a thread that multiplies matrices: oneDNN's sgemm (2.6 and 3.7) points the stack pointer to a
// buffer of its own, and the kernel would write the handler's frame beyond that buffer.
#pragma once

namespace tril {

// Turns SIGPIPE and SIGXFSZ into errors of the write that caused them. For the start of main.
void ignore_write_signals();

// For the start of main, before there are other threads. Until catch_stop_signals(), a signal ends the process as
// usual.
void watch_stop_signals();

// From now on the first SIGINT, SIGTERM or SIGHUP asks the work to stop and save, and another that comes half a second
// later or more ends the process at once. Call it once there is something to save. `notice`, a whole line that must
// stay in memory, is written to standard error if the work has not ended after that half second.
void catch_stop_signals(const char* notice = nullptr);

// The first signal caught, or 0. Long loops check it at each step, window or token. The exit code is this plus 128.
[[nodiscard]] int stop_signal();

}  // namespace tril
