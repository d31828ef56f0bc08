#include "train/data/text_place.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "train/base/files.h"
#include "train/base/json_text.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

std::string name_of(const std::string& path) {
  const std::filesystem::path plain = std::filesystem::path(path).lexically_normal();
  const std::string name = (plain.has_filename() ? plain : plain.parent_path()).filename().string();
  return name.empty() ? "text" : name;
}

}  // namespace

void store_text_paths(const std::string& folder, const std::vector<std::string>& paths) {
  nlohmann::ordered_json json;
  auto& shown = json["paths"] = nlohmann::ordered_json::array();
  for (const std::string& path : paths) shown.push_back(is_utf8(path) ? path : printable(path));
  write_file_atomically(folder + "/" + kTextFile, json_text(json) + "\n");
}

std::optional<std::vector<std::string>> stored_text_paths(const std::string& folder) {
  const std::string file = folder + "/" + kTextFile, where = printable(file);
  std::error_code unreadable;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, unreadable))) return std::nullopt;
  constexpr int64_t kLongest = int64_t{1} << 30;
  const std::string json = read_file(file, kLongest);
  std::optional<std::vector<std::string>> paths;
  JsonReader reader(json, where);
  reader.object([&](const std::string& key) {
    TRIL_CHECK(key == "paths" && !paths, where, "the paths of a run's text, once", printable(key, 40));
    paths.emplace();
    reader.array([&] { paths->push_back(reader.string()); });
  });
  reader.end();
  TRIL_CHECK(paths.has_value(), where, "the paths of a run's text", "none");
  return paths;
}

std::vector<std::string> text_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names(paths.size());
  std::transform(paths.begin(), paths.end(), names.begin(), name_of);
  return names;
}

}  // namespace tril
