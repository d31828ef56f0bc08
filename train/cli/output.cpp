#include "train/cli/output.h"

#include <unistd.h>

#include <system_error>

#include "train/base/streams.h"

namespace tril::cli {

void write_output(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, fit_for(STDOUT_FILENO, text));
  if (error != 0)
    throw OutputError(cat("standard output: expected to be written to, got ", std::generic_category().message(error)),
                      error);
}

}  // namespace tril::cli
