// Runs the built program as a user does, and keeps what it said.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {

struct Outcome {
  int code = 0;  // the exit code, or 128 and the signal's number
  std::string out, err;
};

// A folder to work in, where `tril` in a command line stands for the program (TRIL_PROGRAM, given by the build).
class Shell {
 public:
  [[nodiscard]] Outcome run(const std::string& line) const {
    const std::string script = "tril() { \"$TRIL\" \"$@\"; }\n" + line + "\n";
    folder_.put(".script", script);
    // One thread: the models are tiny, and tests run side by side.
    const std::string command = "cd '" + folder_.path() +
                                "' && TRIL='" TRIL_PROGRAM "' OMP_NUM_THREADS=1 sh ./.script " +
                                ">.out 2>.err </dev/null";
    const int status = std::system(command.c_str());
    REQUIRE(status != -1);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents_of(folder_ / ".out"),
            contents_of(folder_ / ".err")};
  }
  [[nodiscard]] const TempFolder& folder() const { return folder_; }
  std::string put(std::string_view name, std::string_view contents) const { return folder_.put(name, contents); }
  [[nodiscard]] bool has(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  [[nodiscard]] std::string read(const std::string& name) const { return contents_of(folder_ / name); }

 private:
  TempFolder folder_;
};

[[nodiscard]] inline int64_t count_lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace tril::test
