// Ctrl-C and its relatives, for the programs. Call from the main thread.
#pragma once

namespace tril {

// SIGPIPE and SIGXFSZ become errors of the write that met them. For the start of main.
void ignore_write_signals();

// From now on the first SIGINT or SIGTERM asks the work to stop and save, and the second ends the process at once.
// For when there is something to save; before, a signal may end the process.
void catch_stop_signals();

// The first signal caught, or 0. Long loops look at it, each step, window or token. The exit code is 128 more.
[[nodiscard]] int stop_signal();

}  // namespace tril
