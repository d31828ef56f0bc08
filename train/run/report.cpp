#include "train/run/report.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <fstream>
#include <system_error>

#include "train/base/utf8.h"

namespace tril {
namespace {

using namespace std::chrono_literals;

// Cuts off an unfinished last line, which a writer leaves when it is killed or the disk is full.
void cut_torn_line(int fd) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  off_t whole = size;
  char block[1 << 16];
  while (whole > 0) {
    const off_t begin = std::max<off_t>(whole - off_t{sizeof block}, 0);
    const ssize_t got = ::pread(fd, block, static_cast<size_t>(whole - begin), begin);
    if (got != whole - begin) return;
    const size_t end = std::string_view(block, static_cast<size_t>(got)).rfind('\n');
    whole = end == std::string_view::npos ? begin : begin + static_cast<off_t>(end) + 1;
    if (end != std::string_view::npos) break;
  }
  if (whole < size) static_cast<void>(::ftruncate(fd, whole));  // where that fails, writing will, too
}

// The number that follows `name` in a line; 0 if it has none, or is torn.
template <class Number>
Number number_in(std::string_view line, std::string_view name) {
  const size_t found = line.find(name);
  Number number{};
  if (found != std::string_view::npos)
    std::from_chars(line.data() + found + name.size(), line.data() + line.size(), number);
  return number;
}

// The seconds that a run has taken, by the lines of its log, read in order. In older versions seconds began again at 0
// after each "resume" line, which has none itself.
class ToldClock {
 public:
  void read(std::string_view line) {
    const double told = number_in<double>(line, "\"seconds\":");
    const bool tells = std::isfinite(told) && told > 0;
    if (line.starts_with("{\"event\":\"resume\"")) begin_ = tells ? 0 : seconds_;
    if (tells) seconds_ = begin_ + told;
  }
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  double begin_ = 0, seconds_ = 0;
};

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[64];
  const size_t length = ::gmtime_r(&now, &parts) == nullptr ? 0 : std::strftime(text, sizeof text, "%FT%TZ", &parts);
  return {text, length};
}

bool is_of_an_evaluation(std::string_view line) {
  return line.starts_with("{\"event\":\"eval\"") || line.starts_with("{\"event\":\"sample\"");
}

}  // namespace

std::string duration_text(double seconds) {
  constexpr double kMost = 1e9;
  const auto whole = static_cast<int64_t>(std::lround(std::min(seconds, kMost)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest) : fmt::format("{}:{:02}", minutes, rest);
}

LineFile::LineFile(const std::string& path, Log& log) : path_(path), log_(log) { reopen(); }

void LineFile::reopen() {
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  struct stat kind {};
  if (file_.get() < 0 || ::fstat(file_.get(), &kind) != 0)
    give_up(std::generic_category().message(errno));
  else if (S_ISFIFO(kind.st_mode))
    give_up("a pipe");
  else
    cut_torn_line(file_.get());
}

double LineFile::forget_after(int64_t step, bool evaluated) {
  struct stat kind {};
  if (file_.get() < 0 || ::fstat(file_.get(), &kind) != 0 || !S_ISREG(kind.st_mode)) return 0;  // a device has no past
  std::ifstream lines(path_, std::ios::binary);
  int64_t at = 0, cut = -1;  // where the lines begin that are to be cut off
  ToldClock clock;
  double seconds = 0;
  for (std::string line; std::getline(lines, line); at += static_cast<int64_t>(line.size()) + 1) {
    const auto told = number_in<int64_t>(line, "\"step\":");
    const bool comes_again = told > step || (told == step && !evaluated && is_of_an_evaluation(line));
    clock.read(line);
    if (!line.empty() && !comes_again) {
      cut = -1;
      seconds = clock.seconds();
    } else if (cut < 0) {
      cut = at;
    }
  }
  if (cut >= 0 && ::ftruncate(file_.get(), cut) != 0) give_up(std::generic_category().message(errno));
  return seconds;
}

void LineFile::append(std::string_view line) {
  if (file_.get() < 0) return;
  const std::string whole = cat(line, '\n');
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t done = ::write(file_.get(), rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return lose_line(std::generic_category().message(done < 0 ? errno : EIO));
    rest.remove_prefix(static_cast<size_t>(done));
  }
}

void LineFile::lose_line(const std::string& why) {
  cut_torn_line(file_.get());
  if (!losing_)
    log_.warn(cat(printable(path_), ": expected to write a line, got ", why, "; lines are left out until that works"));
  losing_ = true;
}

void LineFile::give_up(const std::string& what) {
  log_.warn(cat(printable(path_), ": expected a file to write to, got ", what, "; training goes on without it"));
  file_ = Descriptor();
}

Report::Report(Options options, Log& log) : options_(std::move(options)), log_(log), file_(options_.log_path, log) {}

void Report::event(const Event& event) {
  const double seconds = seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
  file_.append(json_line(event, options_.unit == "bytes" ? "bytes" : "chars", seconds, time_of_day()));
}

bool Report::due(Clock::duration interval) {
  const auto now = Clock::now();
  if (said_anything_ && now - said_ < interval) return false;
  said_anything_ = true;
  said_ = now;
  return true;
}

std::string Report::progress() const {
  std::string line = fmt::format("step {}/{}", last_.step, options_.steps);
  if (begun_) line += fmt::format("  loss {:.4f}", last_.loss);
  if (validation_) line += fmt::format("  validation {:.4f}", *validation_);
  const bool has_room = !log_.is_live();  // a live line must be short
  if (validation_ && has_room && validated_ != last_.step) line += fmt::format(" at step {}", validated_);
  if (steps_timed_ == 0) return line;
  const double speed = static_cast<double>(options_.tokens_a_step) / seconds_a_step_;
  const double left = static_cast<double>(options_.steps - last_.step) * seconds_a_step_;
  return line + fmt::format("  {:.0f} {}/s  {} left", speed, options_.unit, duration_text(left));
}

void Report::step(const StepResult& result, double seconds) {
  // The first step sets up memory, so its time says nothing about later ones.
  constexpr double kLeastWeight = 0.05;
  if (begun_) {
    const double weight = std::max(kLeastWeight, 1.0 / static_cast<double>(++steps_timed_));
    seconds_a_step_ += weight * (seconds - seconds_a_step_);
  }
  begun_ = true;
  last_ = result;
  if (result.step == 1 || result.step % options_.log_every == 0)
    event(StepEvent{.step = result.step,
                    .loss = result.loss,
                    .norm = result.norm,
                    .rate = result.rate,
                    .tokens_a_second = static_cast<double>(options_.tokens_a_step) / seconds});
  if (log_.is_live()) {
    if (due(100ms)) log_.live(progress());
  } else if (result.step < options_.steps && due(10s)) {  // the last step is reported by its evaluation
    log_.note(progress());
  }
}

void Report::evaluating(int64_t step) { log_.live(fmt::format("step {}/{}  evaluating", step, options_.steps)); }

void Report::evaluation(const ModelState& state) {
  const auto known = [](double loss) { return std::isnan(loss) ? std::nullopt : std::optional(loss); };
  EvalEvent told{.step = state.step, .loss = known(state.loss), .best_step = state.best_step};
  if (told.loss) {
    told.best_loss = known(state.best_loss);  // none if no model could be stored yet
    told.best_possible = options_.best_possible;
    validation_ = told.loss;
    validated_ = told.step;
  }
  last_.step = told.step;
  std::string line = progress();
  if (told.best_loss && told.step != told.best_step) line += fmt::format("  best so far {:.4f}", *told.best_loss);
  if (told.best_possible) line += fmt::format("  best possible {:.4f}", *told.best_possible);
  log_.note(line);
  said_ = Clock::now();
  event(told);
}

void Report::sample(int64_t step, std::string_view text) {
  std::string whole;
  Utf8Stream stream;
  stream.push(text, whole);
  stream.flush(whole);
  event(SampleEvent{step, whole});
  std::string indented = "  | ";
  for (size_t at = 0; at < whole.size();) {
    const auto length = static_cast<size_t>(decode_utf8(whole, at).length);
    const char first = whole[at];
    const std::string character = whole.substr(at, length);
    indented += first == '\n' || first == '\t' ? character : printable(character);  // nothing that steers a terminal
    if (first == '\n') indented += "  | ";
    at += length;
  }
  log_.note(indented);
}

}  // namespace tril
