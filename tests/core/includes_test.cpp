// The arrows between the rooms, read from the #include lines: a wrong one does not hide behind a linker that lets it
// pass.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/check.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

namespace {

namespace fs = std::filesystem;

struct Line {
  std::string file;  // from the root: "core/tape.cpp"
  std::string text;
};

std::vector<Line> lines_of(const std::string& room) {
  std::vector<Line> lines;
  const fs::path root = TRIL_SOURCE_DIR;
  for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
    const std::string kind = entry.path().extension().string();
    if (kind != ".h" && kind != ".cpp") continue;
    std::ifstream file(entry.path());
    for (std::string text; std::getline(file, text);)
      lines.push_back({fs::relative(entry.path(), root).generic_string(), text});
  }
  return lines;
}

// What stands between the quotes of `#include "…"`, or with '<' before it, of `#include <…>`; else empty.
std::string included_by(const std::string& text) {
  const size_t start = text.find_first_not_of(' ');
  if (start == std::string::npos || text.compare(start, 8, "#include") != 0) return {};
  const size_t open = text.find_first_of("\"<", start);
  const size_t close = text.find_first_of("\">", open + 1);
  if (open == std::string::npos || close == std::string::npos) return {};
  return text.substr(text[open] == '<' ? open : open + 1, text[open] == '<' ? close - open : close - open - 1);
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// Every include of the room's files must be allowed.
void require_includes(const std::string& room,
                      const std::function<bool(const std::string&, const std::string&)>& allowed) {
  const std::vector<Line> lines = lines_of(room);
  REQUIRE(lines.size() > 100);
  for (const Line& line : lines) {
    const std::string included = included_by(line.text);
    if (included.empty()) continue;
    INFO(line.file << " includes " << included);
    CHECK(allowed(line.file, included));
  }
}

// The standard library's headers have neither a folder nor an ending; the few of the system are named.
bool is_standard(const std::string& included) {
  if (included[0] != '<') return false;
  return included.find_first_of("./") == std::string::npos;
}

}  // namespace

TEST_CASE("includes: an include line is read as the compiler reads it") {
  CHECK(included_by("#include \"core/op.h\"") == "core/op.h");
  CHECK(included_by("#include <dnnl.hpp>") == "<dnnl.hpp");
  CHECK(included_by("  #include <vector>  // why") == "<vector");
  CHECK(included_by("// #include <vector>").empty());
  CHECK(included_by("int include = 0;").empty());
  CHECK(is_standard("<vector"));
  CHECK_FALSE(is_standard("<sys/mman.h"));
  CHECK_FALSE(is_standard("<dnnl.hpp"));
}

TEST_CASE("includes: core knows itself, the standard library, and each outside thing in one place") {
  require_includes("core", [](const std::string& file, const std::string& included) {
    if (included == "<dnnl.hpp") return file == "core/onednn.cpp";
    if (included == "<omp.h" || included == "<xmmintrin.h" || included == "<execinfo.h")
      return file == "core/parallel.cpp";
    if (included == "<cpuid.h" || included == "<sys/syscall.h" || included == "<unistd.h")
      return file == "core/matrix_unit.cpp";
    if (starts_with(included, "<sys/")) return file == "core/arena.cpp";
    return is_standard(included) || starts_with(included, "core/") || included == "<immintrin.h";
  });
}

TEST_CASE("includes: kernels and matrix products know pointers and sizes, never a Tensor or a Tape") {
  const std::vector<std::string> low = {"core/kernels/", "core/gemm.",      "core/split_gemm.", "core/tile",
                                        "core/bf16_",    "core/attention_", "core/onednn.",     "core/matrix_unit."};
  const std::vector<std::string> high = {"core/tensor.h", "core/tape.h", "core/op.h",
                                         "core/ops.h",    "core/ops/",   "core/gradcheck"};
  for (const Line& line : lines_of("core")) {
    const std::string included = included_by(line.text);
    INFO(line.file << " includes " << included);
    const auto begins = [](const std::string& name) {
      return [&name](const std::string& start) { return starts_with(name, start); };
    };
    if (std::any_of(low.begin(), low.end(), begins(line.file)))
      CHECK(std::none_of(high.begin(), high.end(), begins(included)));
  }
}

TEST_CASE("includes: nn knows core and the standard library") {
  require_includes("nn", [](const std::string&, const std::string& included) {
    return is_standard(included) || starts_with(included, "core/") || starts_with(included, "nn/");
  });
}

TEST_CASE("includes: train knows no command line") {
  require_includes("train", [](const std::string& file, const std::string& included) {
    const bool of_cli = starts_with(included, "train/cli/") || starts_with(included, "<cxxopts");
    return !of_cli || starts_with(file, "train/cli/");
  });
}

TEST_CASE("includes: only core/onednn.cpp knows oneDNN, and nobody reaches into the gradient checker's inside") {
  for (const char* const room : {"nn", "train", "examples"})
    for (const Line& line : lines_of(room)) {
      const std::string included = included_by(line.text);
      INFO(line.file << " includes " << included);
      CHECK(included.find("dnnl") == std::string::npos);
      CHECK_FALSE(starts_with(included, "core/gradcheck_"));
    }
}

TEST_CASE("includes: threads are OpenMP's in core/parallel, everywhere else a pragma is for lanes alone") {
  for (const char* const room : {"core", "nn", "train", "examples"})
    for (const Line& line : lines_of(room)) {
      const size_t pragma = line.text.find("#pragma omp");
      if (pragma == std::string::npos || starts_with(line.file, "core/parallel.")) continue;
      INFO(line.file << ": " << line.text);
      CHECK(starts_with(line.text.substr(pragma), "#pragma omp simd"));
    }
}
