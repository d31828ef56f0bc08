// Lines for people, on standard error: notes, warnings, errors, and on a terminal one live line below them that is
// overwritten in place. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace tril {

class Log {
 public:
  // quiet: only warnings and errors.
  explicit Log(bool quiet = false);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void note(std::string_view line);
  void warn(std::string_view line);   // "warning: …"
  void error(std::string_view line);  // "error: …"

  // Shows the live line in place of the one before. Does nothing if standard error is no terminal.
  void live(std::string_view line);
  void clear_live();
  [[nodiscard]] bool is_live() const { return live_; }

 private:
  std::shared_ptr<spdlog::logger> logger_;
  bool live_, shown_ = false;
};

}  // namespace tril
