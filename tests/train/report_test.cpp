#include "train/report.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> out;
  std::istringstream text(contents_of(path));
  for (std::string line; std::getline(text, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace

TEST_CASE("report: numbers and durations as people read them") {
  CHECK(fixed(1.98766, 4) == "1.9877");
  CHECK(fixed(0.0, 4) == "0.0000");
  CHECK(fixed(1e6, 0) == "1000000");
  CHECK(fixed(1e308, 0).size() == 309);
  CHECK(duration_text(0) == "0:00");
  CHECK(duration_text(7.4) == "0:07");
  CHECK(duration_text(59.6) == "1:00");
  CHECK(duration_text(754) == "12:34");
  CHECK(duration_text(3723) == "1:02:03");
  CHECK(duration_text(1e30) == duration_text(1e9));
}

TEST_CASE("report: what comes again is forgotten, and nothing else") {
  const std::string first = R"({"event":"step","step":1})", second = R"({"event":"step","step":2})",
                    evaluation = R"({"event":"eval","step":2})", sample = R"({"event":"sample","step":2})",
                    resume = R"({"event":"resume","step":2})", third = R"({"event":"step","step":3})";
  const auto left = [](const std::vector<std::string>& lines, int64_t step, bool evaluated) {
    const TempFolder folder;
    Log log(true);
    LineFile file(folder / "log", log);
    for (const std::string& line : lines) file.append(line);
    file.forget_after(step, evaluated);
    std::vector<std::string> out;
    std::istringstream text(contents_of(folder / "log"));
    for (std::string line; std::getline(text, line);) out.push_back(line);
    return out;
  };
  using Lines = std::vector<std::string>;
  const Lines all = {first, second, evaluation, sample, third};
  CHECK(left(all, 3, true) == all);
  CHECK(left(all, 2, true) == Lines{first, second, evaluation, sample});
  CHECK(left(all, 2, false) == Lines{first, second});
  CHECK(left(all, 1, true) == Lines{first});
  CHECK(left({first, second, evaluation, sample, resume}, 2, true) == Lines{first, second, evaluation, sample, resume});
  CHECK(left({first, second, resume, evaluation}, 2, false) == Lines{first, second, resume});
}

TEST_CASE("report: the log has the first step, every n-th, and each evaluation with its sample") {
  const TempFolder folder;
  Log log(true);
  Report report({.log_path = folder / "log", .steps = 10, .log_every = 4, .tokens_a_step = 32, .best_possible = 0.5},
                log);
  report.event("start", "\"threads\":2");
  for (int64_t step = 1; step <= 10; ++step)
    report.step({.step = step, .loss = 1.0 / static_cast<double>(step), .norm = 2, .rate = 1e-3}, 0.5);
  ModelState state;
  state.step = 10;
  state.loss = 1.5;
  state.best_loss = 1.25;
  report.evaluation(state);
  report.sample(10, "a \"quote\"\n\x1b[2J\xff");
  const auto lines = lines_of(folder / "log");
  REQUIRE(lines.size() == 6);
  CHECK(lines[0] == nlohmann::json{{"event", "start"}, {"threads", 2}});
  for (const auto& [line, step] : {std::pair{1, 1}, {2, 4}, {3, 8}}) {
    const auto& json = lines[static_cast<size_t>(line)];
    CHECK(json.at("event") == "step");
    CHECK(json.at("step") == step);
    CHECK(json.at("loss") == 1.0 / step);
    CHECK(json.at("lr") == 1e-3);
    CHECK(json.at("chars_per_s") == 64);
  }
  CHECK(lines[4] ==
        nlohmann::json{{"event", "eval"}, {"step", 10}, {"loss", 1.5}, {"best_loss", 1.25}, {"best_possible", 0.5}});
  CHECK(lines[5].at("text") == "a \"quote\"\n\x1b[2J\xEF\xBF\xBD");
}

TEST_CASE("report: an evaluation without a loss has none") {
  const TempFolder folder;
  Log log(true);
  Report report({.log_path = folder / "log", .steps = 10}, log);
  ModelState state;
  state.step = 3;
  report.evaluation(state);
  CHECK(lines_of(folder / "log").at(0) == nlohmann::json{{"event", "eval"}, {"step", 3}});
}

TEST_CASE("report: lines go behind what is there, and a torn one goes") {
  const TempFolder folder;
  Log log(true);
  folder.put("whole", "a\n");
  folder.put("torn", "a\nb");
  folder.put("all torn", "b");
  folder.put("long", "a\n" + std::string(200'000, 'b'));
  for (const char* name : {"whole", "torn", "new", "all torn", "long"}) LineFile(folder / name, log).append("c");
  CHECK(contents_of(folder / "whole") == "a\nc\n");
  CHECK(contents_of(folder / "torn") == "a\nc\n");
  CHECK(contents_of(folder / "all torn") == "c\n");
  CHECK(contents_of(folder / "long") == "a\nc\n");
  CHECK(contents_of(folder / "new") == "c\n");
}

TEST_CASE("report: a line without room is left out whole, and later ones come again") {
  const TempFolder folder;
  Log log(true);
  LineFile file(folder / "log", log);
  file.append("aaaa");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 10, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  file.append("bbbbbbbbbb");
  file.append("cc");
  file.append("dddd");
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  file.append("e");
  CHECK(contents_of(folder / "log") == "aaaa\ncc\ne\n");
}

TEST_CASE("report: a log that cannot be opened or written stops nothing") {
  const TempFolder folder;
  Log log(true);
  LineFile(folder / "none/log", log).append("x");
  LineFile(folder.path(), log).append("x");
  LineFile full("/dev/full", log);
  full.append("x");
  full.append("x");
  CHECK_FALSE(std::filesystem::exists(folder / "none"));
}

}  // namespace tril::test
