// What the system calls its processor.
#pragma once

#include <istream>
#include <string>

namespace tril {

// From what Linux writes to /proc/cpuinfo, which has other names for it on every kind of processor.
[[nodiscard]] std::string cpu_name(std::istream& cpuinfo);
[[nodiscard]] std::string cpu_name();

}  // namespace tril
