#include "train/base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tril {
namespace {

// The first line of a small file; empty where it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// None for "max" and -1, which mean no limit.
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value <= 0) return std::nullopt;
  return value;
}

std::optional<double> share(std::string_view quota, std::string_view period) {
  const auto time = number(quota), of = number(period);
  return time && of ? std::optional(*time / *of) : std::nullopt;
}

// How to read one limit from a group's folder, in both versions of cgroup.
struct Limit {
  std::string_view controller;
  std::optional<double> (*v2)(const std::string& folder);
  std::optional<double> (*v1)(const std::string& folder);
};
constexpr Limit kProcessors{
    "cpu",
    [](const std::string& folder) {  // "150000 100000" or "max 100000"
      const std::string line = first_line(folder + "/cpu.max");
      const size_t space = line.find(' ');
      return space == std::string::npos ? std::nullopt : share(line.substr(0, space), line.substr(space + 1));
    },
    [](const std::string& folder) {
      return share(first_line(folder + "/cpu.cfs_quota_us"), first_line(folder + "/cpu.cfs_period_us"));
    }};
constexpr Limit kMemory{
    "memory", [](const std::string& folder) { return number(first_line(folder + "/memory.max")); },
    [](const std::string& folder) { return number(first_line(folder + "/memory.limit_in_bytes")); }};

// Lowers `least` to the limits of the group at `path` below `mount` and of all groups above it.
void tighten(std::optional<double>& least, const std::string& mount, std::string path,
             std::optional<double> (*limit)(const std::string&)) {
  for (;;) {
    if (const auto here = limit(mount + path)) least = std::min(least.value_or(*here), *here);
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Whether a comma-separated list contains `name`.
bool lists(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

std::optional<double> least_of(const std::string& root, const Limit& limit) {
  std::optional<double> least;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) tighten(least, root + "/sys/fs/cgroup", path, limit.v2);
    if (lists(controllers, limit.controller))
      for (const std::string& mount : {controllers, std::string(limit.controller)})
        tighten(least, root + "/sys/fs/cgroup/" + mount, path, limit.v1);
  }
  return least;
}

}  // namespace

std::optional<int> cgroup_processors(const std::string& root) {
  const auto least = least_of(root, kProcessors);
  if (!least) return std::nullopt;
  return static_cast<int>(std::clamp(std::floor(*least), 1.0, 4096.0));
}

std::optional<int64_t> cgroup_memory(const std::string& root) {
  constexpr double kMost = 0x1p62;  // v1 writes nearly 2^63 for no limit
  const auto least = least_of(root, kMemory);
  if (!least || *least >= kMost) return std::nullopt;
  return static_cast<int64_t>(*least);
}

}  // namespace tril
