#include "train/base/load.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "train/base/cgroup.h"

namespace tril {
namespace {

// Seconds that a thread has waited for a processor: the second number of its schedstat. All numbers are 0 if the kernel
// does not count.
std::optional<double> wait_of(const std::string& path) {
  std::ifstream file(path);
  double ran = 0, waited = 0;
  if (!(file >> ran >> waited) || ran <= 0) return std::nullopt;
  return 1e-9 * waited;
}

double involuntary_switches() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_nivcsw);
}

}  // namespace

std::vector<int> LoadMeter::allowed_processors() {
  cpu_set_t set;
  std::vector<int> numbers;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) numbers.push_back(i);
  return numbers;
}

LoadMeter::LoadMeter(std::string root, std::vector<int> processors)
    : root_(std::move(root)), processors_(std::move(processors)) {
  const auto granted = cgroup_processors(root_);
  quota_ = granted && *granted < static_cast<int>(processors_.size());
}

MachineLoad LoadMeter::look(double now) {
  MachineLoad load;
  const double since = last_look_ ? now - *last_look_ : 0;
  const auto waited_for = waited(), idle = idled();
  if (since > 0) {
    load.seconds = since;
    if (waited_for) load.waiting = *waited_for / since;
    if (idle && last_idle_) load.idle = std::max(0.0, *idle - *last_idle_) / since;
  }
  last_look_ = now;
  last_idle_ = idle;
  return load;
}

// If the kernel does not count waits, they are estimated from how often a thread lost its processor: each time for
// about a time slice.
std::optional<double> LoadMeter::waited() {
  constexpr double kSlice = 0.003;  // seconds
  std::map<std::string, double> waits;
  double sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator task(root_ + "/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    const auto wait = wait_of(task->path().native() + "/schedstat");  // none if the thread has just ended
    if (!wait) continue;
    const auto before = waits_.find(task->path().native());
    if (before != waits_.end()) sum += std::max(0.0, *wait - before->second);
    waits[task->path().native()] = *wait;
  }
  const bool known = !waits.empty() && !waits_.empty();
  waits_ = std::move(waits);
  const double switches = involuntary_switches();
  const auto before = std::exchange(last_switches_, switches);
  if (known) return sum;
  return before ? std::optional(kSlice * (switches - *before)) : std::nullopt;
}

// Seconds that the processors have been idle, added up. A line is "cpu3 user nice system idle iowait …".
std::optional<double> LoadMeter::idled() const {
  if (quota_ || processors_.empty()) return std::nullopt;
  std::ifstream file(root_ + "/proc/stat");
  double ticks = 0;
  size_t found = 0;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream words(line.substr(3));
    int number = 0;
    double user = 0, nice = 0, system = 0, idle = 0, disk = 0;
    if (line[3] == ' ' || !(words >> number >> user >> nice >> system >> idle >> disk)) continue;
    if (!std::binary_search(processors_.begin(), processors_.end(), number)) continue;
    ticks += idle + disk;
    ++found;
  }
  if (found != processors_.size()) return std::nullopt;
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::function<MachineLoad()> machine_load() {
  return [meter = LoadMeter()]() mutable {
    return meter.look(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  };
}

}  // namespace tril
