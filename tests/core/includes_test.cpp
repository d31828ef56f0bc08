// The arrows between the rooms (which room may include which), checked in the #include lines: the linker does not find
// every wrong one.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

namespace {

namespace fs = std::filesystem;

struct Line {
  std::string file;  // from the root: "core/autograd/tape.cpp"
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

// What a line includes: the text between the quotes of `#include "…"`, or '<' and the text of `#include <…>`. Empty if
// it is no include.
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

// The room that a path lies in: its folder, "core/ops" for "core/ops/add.cpp", and "core" for the public door.
std::string room_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

using Names = std::vector<std::string>;

Names plus(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

struct Room {
  std::string name;
  Names knows;    // the rooms that it may include, besides itself
  Names outside;  // the libraries that it may include, besides the standard one
};

const std::string kPosix = "POSIX";  // stands for the system's own headers

std::vector<Room> rooms() {
  const Names machine = {"core/base", "core/machine"};
  const Names kernels = plus(machine, {"core/kernels"});
  const Names matmul = plus(kernels, {"core/matmul"});
  const Names attention = plus(matmul, {"core/attention"});
  const Names ops = plus(attention, {"core", "core/autograd"});
  const Names nn = plus(ops, {"nn"});
  const Names data = {"core/base", "core/machine", "train/base", "train/data"};
  const Names model = plus(nn, {"train/base", "train/data", "train/model"});
  const Names all = plus(model, {"train/run", "core/gradcheck"});
  const Names system = {"<spdlog/fmt", "<nlohmann", kPosix};
  return {
      {"core/base", {}, {}},
      {"core/machine", machine, {"<dnnl.hpp", "<omp.h", kPosix}},
      {"core/kernels", kernels, {}},
      {"core/matmul", matmul, {}},
      {"core/attention", attention, {}},
      {"core/autograd", machine, {}},
      {"core", plus(attention, {"core/autograd"}), {}},
      {"core/ops", ops, {}},
      {"core/gradcheck", plus(machine, {"core/autograd"}), {}},
      {"nn", nn, {}},
      {"train/base", {"core/base", "core/machine"}, plus(system, {"<spdlog"})},
      {"train/data", data, system},
      {"train/model", model, system},
      {"train/run", plus(model, {"train/run"}), system},
      {"train/cli", all, plus(system, {"<cxxopts.hpp"})},
      {"examples", all, {}},
  };
}

// The standard library's headers have neither a folder nor an extension.
bool is_standard(const std::string& included) { return included.find_first_of("./") == std::string::npos; }

// The system's headers end in .h and have no folder, or lie in sys/.
bool is_posix(const std::string& included) {
  return included.find('/') == std::string::npos ? included.ends_with(".h") && included != "<omp.h"
                                                 : starts_with(included, "<sys/");
}

bool allowed(const Room& room, const std::string& included) {
  if (included[0] != '<') {
    const std::string other = room_of(included);
    return other == room.name || std::find(room.knows.begin(), room.knows.end(), other) != room.knows.end();
  }
  return is_standard(included) || std::any_of(room.outside.begin(), room.outside.end(), [&](const std::string& name) {
           return name == kPosix ? is_posix(included) : starts_with(included, name);
         });
}

}  // namespace

TEST_CASE("includes: an include line is read as the compiler reads it") {
  CHECK(included_by("#include \"core/autograd/op.h\"") == "core/autograd/op.h");
  CHECK(included_by("#include <dnnl.hpp>") == "<dnnl.hpp");
  CHECK(included_by("  #include <vector>  // why") == "<vector");
  CHECK(included_by("// #include <vector>").empty());
  CHECK(included_by("int include = 0;").empty());
  CHECK(is_standard("<vector"));
  CHECK_FALSE(is_standard("<sys/mman.h"));
  CHECK_FALSE(is_standard("<dnnl.hpp"));
  CHECK(is_posix("<sys/mman.h"));
  CHECK(is_posix("<unistd.h"));
  CHECK_FALSE(is_posix("<dnnl.hpp"));
  CHECK_FALSE(is_posix("<spdlog/spdlog.h"));
}

TEST_CASE("includes: a room knows itself and what its arrows lead to") {
  const std::vector<Room> all = rooms();
  size_t read = 0;
  for (const char* const top : {"core", "nn", "train", "examples"})
    for (const Line& line : lines_of(top)) {
      const auto room =
          std::find_if(all.begin(), all.end(), [&](const Room& one) { return one.name == room_of(line.file); });
      INFO(line.file << ": " << line.text);
      REQUIRE(room != all.end());
      const std::string included = included_by(line.text);
      if (included.empty()) continue;
      ++read;
      CHECK(allowed(*room, included));
    }
  REQUIRE(read > 500);
}

TEST_CASE("includes: threads are the machine's, everywhere else an OpenMP pragma is for lanes alone") {
  for (const char* const top : {"core", "nn", "train", "examples"})
    for (const Line& line : lines_of(top)) {
      const size_t pragma = line.text.find("#pragma omp");
      if (pragma == std::string::npos || room_of(line.file) == "core/machine") continue;
      INFO(line.file << ": " << line.text);
      CHECK(starts_with(line.text.substr(pragma), "#pragma omp simd"));
    }
}
