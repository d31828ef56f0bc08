// Standard output, where results go. Used by the main thread alone.
#pragma once

#include <string_view>

#include "core/check.h"

namespace tril::cli {

// Standard output could not be written. Where its reader has merely gone away (head has seen enough), there is nobody
// left to tell, and main ends quietly.
class OutputError : public Error {
 public:
  OutputError(const std::string& text, bool reader_gone) : Error(text), reader_gone_(reader_gone) {}
  [[nodiscard]] bool reader_gone() const { return reader_gone_; }

 private:
  bool reader_gone_;
};

// Writes all of it at once, unbuffered, or throws OutputError.
void write_output(std::string_view text);

}  // namespace tril::cli
