#include "train/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/parallel.h"

namespace tril {
namespace {

// The first line of a small file; empty where it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value <= 0) return std::nullopt;
  return value;
}

std::optional<double> share(std::string_view quota, std::string_view period) {
  const auto time = number(quota), of = number(period);
  return time && of ? std::optional(*time / *of) : std::nullopt;  // "max" and -1 are no limits
}

// "150000 100000" or "max 100000".
std::optional<double> share_v2(const std::string& folder) {
  const std::string line = first_line(folder + "/cpu.max");
  const size_t space = line.find(' ');
  return space == std::string::npos ? std::nullopt : share(line.substr(0, space), line.substr(space + 1));
}

std::optional<double> share_v1(const std::string& folder) {
  return share(first_line(folder + "/cpu.cfs_quota_us"), first_line(folder + "/cpu.cfs_period_us"));
}

// The least share of the group at `path` below `mount` and of all above it.
template <class Share>
void tighten(std::optional<double>& least, const std::string& mount, std::string path, Share&& share_of) {
  for (;;) {
    if (const auto here = share_of(mount + path)) least = std::min(least.value_or(*here), *here);
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Whether a comma-separated list of controllers has `cpu`.
bool controls_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

std::optional<int> cgroup_processors(const std::string& root) {
  std::optional<double> least;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) tighten(least, root + "/sys/fs/cgroup", path, share_v2);
    if (controls_cpu(controllers))
      for (const std::string& mount : {controllers, std::string("cpu")})
        tighten(least, root + "/sys/fs/cgroup/" + mount, path, share_v1);
  }
  if (!least) return std::nullopt;
  return static_cast<int>(std::clamp(std::floor(*least), 1.0, 4096.0));
}

int processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : available_threads();
}

int default_threads() {
  const int available = available_threads();
  return std::min(available, cgroup_processors().value_or(available));
}

void limit_spinning(char* const* argv) {
  constexpr const char *kName = "GOMP_SPINCOUNT", *kSpins = "20000";
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv(kName) != nullptr) return;
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string name = program.filename().string();
  if (name.starts_with("ld-") || name.starts_with("qemu")) return;  // started by hand, with the program as its argument
  if (!failed && ::setenv(kName, kSpins, 1) == 0) ::execv(program.c_str(), argv);
}

}  // namespace tril
