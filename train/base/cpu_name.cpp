#include "train/base/cpu_name.h"

#include <array>
#include <fstream>
#include <map>
#include <string_view>

#include "core/base/check.h"

namespace tril {

std::string cpu_name(std::istream& cpuinfo) {
  std::map<std::string, std::string, std::less<>> found;  // the first value of each key
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(':');
    const size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) continue;
    found.emplace(line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1), line.substr(begin));
  }
  // The keys of x86 and some Arm, MIPS, LoongArch, POWER, and RISC-V.
  constexpr std::array<std::string_view, 5> kNames = {"model name", "cpu model", "Model Name", "cpu", "uarch"};
  for (const std::string_view name : kNames)
    if (const auto entry = found.find(name); entry != found.end()) return entry->second;
  // Most Arm systems give only two numbers: the designer of the core, and its model.
  const auto implementer = found.find("CPU implementer"), part = found.find("CPU part");
  if (implementer != found.end() && part != found.end())
    return cat("Arm, implementer ", implementer->second, ", part ", part->second);
  return "unknown";
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  return cpu_name(file);
}

}  // namespace tril
