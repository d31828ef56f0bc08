#include "train/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace tril {
namespace {

// Notes stand for themselves; what is more than a note says so.
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

size_t columns() {
  winsize size{};
  constexpr size_t kUsual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace

Log::Log(bool quiet) : live_(!quiet && ::isatty(STDERR_FILENO) == 1) {
  logger_ = std::make_shared<spdlog::logger>("tril", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
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
  std::fprintf(stderr, "\r%.*s\x1b[K", static_cast<int>(line.size()), line.data());
  std::fflush(stderr);
  shown_ = true;
}

void Log::clear_live() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace tril
