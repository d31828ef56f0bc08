// A folder of a test's own, gone when the test ends; and what tests of files do in it.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "support/catch.h"

namespace tril::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tril-test-XXXXXX").native();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    REQUIRE(::chmod(path_.c_str(), 0777) == 0);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Writes a file, making the folders it needs, and returns its path.
  std::string put(std::string_view name, std::string_view contents) const {
    const std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) out.insert(entry.path().filename().native());
    return out;
  }

 private:
  std::string path_;
};

[[nodiscard]] inline std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Permissions mean nothing to root, so tests of them run as nobody.
class Unprivileged {
 public:
  Unprivileged() : was_(::geteuid()) {
    if (was_ == 0) REQUIRE(::seteuid(65534) == 0);
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
  ~Unprivileged() {
    if (was_ == 0 && ::seteuid(0) != 0) std::abort();
  }

 private:
  uid_t was_;
};

// What the call's error says, or nothing where it succeeds.
template <class Call>
[[nodiscard]] std::string error_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) { return error.what(); }
  return {};
}

}  // namespace tril::test
