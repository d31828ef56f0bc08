#include "train/base/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "core/base/check.h"
#include "train/base/streams.h"

namespace tril {
namespace {

// Notes have no prefix; warnings and errors have theirs.
class LevelPrefix : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view prefix = message.level >= spdlog::level::err    ? "error: "
                                    : message.level >= spdlog::level::warn ? "warning: "
                                                                           : "";
    out.append(prefix.data(), prefix.data() + prefix.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LevelPrefix>();
  }
};

// If this cannot be written, it is lost: there is nowhere to report it.
void say(std::string_view text) { static_cast<void>(write_all(STDERR_FILENO, text)); }

// spdlog's own sink uses stdio, which loses text when a non-blocking descriptor refuses it at first.
class ErrorStream : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    say(fit_for(STDERR_FILENO, {line.data(), line.size()}));
  }
  void flush_() override {}
};

size_t columns() {
  winsize size{};
  constexpr size_t kUsual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace

Log::Log(bool quiet) : live_(!quiet && ::isatty(STDERR_FILENO) == 1) {
  logger_ = std::make_shared<spdlog::logger>("tril", std::make_shared<ErrorStream>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelPrefix>('*').set_pattern("%*%v");
  logger_->set_formatter(std::move(formatter));
  logger_->set_level(quiet ? spdlog::level::warn : spdlog::level::info);
}

Log::~Log() { clear_live(); }

void Log::note(std::string_view line) {
  clear_live();
  logger_->info("{}", line);
}

void Log::warn(std::string_view line) {
  clear_live();
  logger_->warn("{}", line);
}

void Log::error(std::string_view line) {
  clear_live();
  logger_->error("{}", line);
}

void Log::live(std::string_view line) {
  if (!live_) return;
  line = line.substr(0, columns() - 1);
  say(cat("\r", line, "\x1b[K"));
  shown_ = true;
}

void Log::clear_live() {
  if (!shown_) return;
  say("\r\x1b[K");
  shown_ = false;
}

}  // namespace tril
