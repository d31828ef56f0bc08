#include "train/cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tril::cli {

void write_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(STDOUT_FILENO, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const int error = done < 0 ? errno : EIO;
      throw OutputError(cat("standard output: expected to be written to, got ", std::generic_category().message(error)),
                        error == EPIPE);
    }
    text.remove_prefix(static_cast<size_t>(done));
  }
}

}  // namespace tril::cli
