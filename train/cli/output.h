// Standard output, where results go. Used by the main thread alone.
#pragma once

#include <cerrno>
#include <string_view>

#include "core/base/check.h"

namespace tril::cli {

// Standard output could not be written. Where its reader has merely gone away (head has seen enough), there is nobody
// left to tell, and main ends quietly; so it does where a stop signal came and the reader takes nothing more.
class OutputError : public Error {
 public:
  OutputError(const std::string& text, int error) : Error(text), error_(error) {}
  [[nodiscard]] bool reader_gone() const { return error_ == EPIPE; }
  [[nodiscard]] bool stopped() const { return error_ == ECANCELED; }

 private:
  int error_;
};

// Writes all of it at once, unbuffered, waiting for a slow reader, or throws OutputError. A terminal gets nothing that
// would steer it: such characters are escaped.
void write_output(std::string_view text);

}  // namespace tril::cli
