// What the system calls its processor.
#pragma once

#include <istream>
#include <string>

namespace tril {

// Reads it from the text of /proc/cpuinfo, where each kind of processor has it under another key.
[[nodiscard]] std::string cpu_name(std::istream& cpuinfo);
[[nodiscard]] std::string cpu_name();

}  // namespace tril
