// The room train/cli: the program; a command a file, listed in main.cpp.

// The commands of the program `tril`, one a file in this folder. Each is called once, from main, on the main thread.
// argv[0] is the command's own name, the rest what the user gave it. A command returns the exit code: 0 done, 130 or
// 143 stopped by a signal after saving. If it fails it throws: an Error means exit code 1, a UsageError
// (train/base/usage.h) 2, and main prints its one line. Results go to standard output (output.h), all else to standard
// error.
#pragma once

namespace tril::cli {

int run_train(int argc, const char* const* argv);
int run_sample(int argc, const char* const* argv);
int run_eval(int argc, const char* const* argv);
int run_gradcheck(int argc, const char* const* argv);
int run_bench(int argc, const char* const* argv);
int run_info(int argc, const char* const* argv);

}  // namespace tril::cli
