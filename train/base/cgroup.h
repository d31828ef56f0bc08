// The room train/base: what training needs of the system and of users: files, threads, signals, numbers, the log.

// What this process's control group may use: of cgroup v2 and v1, below `root`; the least of the group and of those
// above it. Nothing where there is no limit. Any thread may call.
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
