// Where a run's text lies. A model file is for sharing and holds only names, so the paths are kept beside it, in a
// hidden file of the run's folder. For the main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tril {

inline constexpr const char* kTextFile = ".text.json";

// Writes them atomically. A path that is not UTF-8 is stored as messages show it, so it will not be found again.
void store_text_paths(const std::string& folder, const std::vector<std::string>& paths);
// None if no paths were stored; throws if they cannot be read.
[[nodiscard]] std::optional<std::vector<std::string>> stored_text_paths(const std::string& folder);

// What a model file stores of paths: their last parts, so "book.txt" of "/home/ann/book.txt"; "-" stays.
[[nodiscard]] std::vector<std::string> text_names(const std::vector<std::string>& paths);

}  // namespace tril
