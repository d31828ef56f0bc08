// The limits of this process's control group (cgroup v2 and v1): the lowest of the group and of those above it. None if
// there is no limit. `root` stands before /proc and /sys. Any thread may call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tril {

// Processors that it may keep busy (v2's cpu.max, v1's quota), at least 1.
[[nodiscard]] std::optional<int> cgroup_processors(const std::string& root = "");

// Bytes of memory (v2's memory.max, v1's limit).
[[nodiscard]] std::optional<int64_t> cgroup_memory(const std::string& root = "");

}  // namespace tril
