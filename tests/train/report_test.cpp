#include "train/run/report.h"

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

nlohmann::json without_clock(nlohmann::json line) {
  CHECK(line.at("seconds") >= 0.0);
  CHECK(line.at("time").is_string());
  line.erase("seconds");
  line.erase("time");
  return line;
}

}  // namespace

TEST_CASE("report: durations as people read them") {
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
  report.event(ThreadsEvent{.step = 0, .threads = 2});
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
  CHECK(without_clock(lines[0]) == nlohmann::json{{"event", "threads"}, {"step", 0}, {"threads", 2}});
  for (const auto& [line, step] : {std::pair{1, 1}, {2, 4}, {3, 8}}) {
    const auto& json = lines[static_cast<size_t>(line)];
    CHECK(json.at("event") == "step");
    CHECK(json.at("step") == step);
    CHECK(json.at("loss") == 1.0 / step);
    CHECK(json.at("lr") == 1e-3);
    CHECK(json.at("chars_per_s") == 64);
  }
  CHECK(without_clock(lines[4]) ==
        nlohmann::json{{"event", "eval"}, {"step", 10}, {"loss", 1.5}, {"best_loss", 1.25}, {"best_possible", 0.5}});
  CHECK(lines[5].at("text") == "a \"quote\"\n\x1b[2J\xEF\xBF\xBD");
}

TEST_CASE("report: seconds go on from those that the log tells of, whichever version wrote it") {
  const std::string old_step = R"({"event":"step","step":10,"loss":1,"seconds":100.5})",
                    old_resume = R"({"event":"resume","step":10,"threads":1})",
                    old_later = R"({"event":"step","step":20,"loss":1,"seconds":50.25})",
                    resume = R"({"event":"resume","step":20,"seconds":160.5,"time":"2024-01-01T00:00:00Z"})",
                    step = R"({"event":"step","step":25,"loss":1,"seconds":170,"time":"2024-01-01T00:00:09Z"})",
                    forgotten = R"({"event":"step","step":30,"loss":1,"seconds":400})",
                    wrong = R"({"event":"step","step":26,"loss":1,"seconds":-1e99})";
  const auto seconds_after = [](const std::vector<std::string>& lines) {
    const TempFolder folder;
    std::string before;
    for (const std::string& line : lines) before += line + "\n";
    folder.put("log", before);
    Log log(true);
    Report report({.log_path = folder / "log", .steps = 40, .log_every = 1}, log);
    report.forget_after(29, true);
    report.step({.step = 30, .loss = 1, .norm = 2, .rate = 1e-3}, 0.5);
    return lines_of(folder / "log").back().at("seconds").get<double>();
  };
  const auto near = [](double expected) { return Approx(expected + 5).margin(5); };  // and the machine's pauses
  CHECK(seconds_after({}) == near(0));
  CHECK(seconds_after({old_step}) == near(100.5));
  CHECK(seconds_after({old_step, old_resume}) == near(100.5));
  CHECK(seconds_after({old_step, old_resume, old_later}) == near(150.75));
  CHECK(seconds_after({old_step, old_resume, old_later, forgotten}) == near(150.75));
  CHECK(seconds_after({old_step, old_resume, old_later, resume}) == near(160.5));
  CHECK(seconds_after({old_step, old_resume, old_later, resume, step, wrong, forgotten}) == near(170));
}

TEST_CASE("report: an evaluation without a loss has none") {
  const TempFolder folder;
  Log log(true);
  Report report({.log_path = folder / "log", .steps = 10}, log);
  ModelState state;
  state.step = 3;
  report.evaluation(state);
  CHECK(without_clock(lines_of(folder / "log").at(0)) == nlohmann::json{{"event", "eval"}, {"step", 3}});
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
