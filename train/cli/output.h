// Standard output, where results go. Used by the main thread alone.
#pragma once

#include <cerrno>
#include <string_view>

#include "core/base/check.h"

namespace tril::cli {

// Standard output could not be written. If its reader is gone (such as head, once it has enough), nobody is left to
// tell, and main ends without a message; also if a stop signal came while the reader took nothing more.
class OutputError : public Error {
 public:
  OutputError(const std::string& text, int error) : Error(text), error_(error) {}
  [[nodiscard]] bool reader_gone() const { return error_ == EPIPE; }
  [[nodiscard]] bool stopped() const { return error_ == ECANCELED; }

 private:
  int error_;
};

// Writes the whole text at once, unbuffered, waiting for a slow reader, or throws OutputError. For a terminal,
// characters that would steer it are escaped.
void write_output(std::string_view text);

}  // namespace tril::cli
