// What a run's log tells after the run was stopped, killed or out of disk space.
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "train/tiny_shell.h"

namespace tril::test {

TEST_CASE("tril train: a sample that a signal cuts short is made again, and none is told of twice") {
  const TinyShell shell;
  for (const std::string& split : {std::string(), std::string(" --val-fraction 0")}) {
    const std::string flags = kDemanding + "--steps 6 --eval-every 1 --sample-length 20000" + split,
                      straight = "straight" + std::to_string(split.size()), run = "cut" + std::to_string(split.size());
    REQUIRE(shell.run("tril train book.txt --out " + straight + flags).code == 0);
    const Outcome stopped = shell.run(kStartAndAwait + "start book.txt --out " + run + flags +
                                      "\nawait '\"step\":2,' " + run + "/log.jsonl; kill -TERM $pid; wait $pid");
    CHECK(stopped.code == 143);
    CHECK(shell.run("tril train --resume " + run).code == 0);
    CHECK(shell.evaluations(straight).size() > 6 * 20000);
    CHECK((shell.evaluations(run) == shell.evaluations(straight)));
  }
}

TEST_CASE("tril train: a process that is killed while it saves leaves no line of the log out and no old state behind") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 15 --eval-every 5 --threads 1 --quiet --out killed").code == 0);
  REQUIRE(shell.run("cp -r killed straight; tril train --resume straight --steps 20 --quiet").code == 0);
  // The folder as a process killed while it saved leaves it: the log already tells of step 20, the states are of 15
  // and 20.
  REQUIRE(shell.run("cp straight/log.jsonl straight/optimizer-20.safetensors killed").code == 0);
  CHECK(shell.run("tril train --resume killed --steps 20 --quiet").code == 0);
  CHECK((shell.evaluations("killed") == shell.evaluations("straight")));
  CHECK(shell.states("killed") == "1\n");
  // And as one leaves it that was killed after the commit: only the old state has to be removed.
  REQUIRE(shell.run("touch killed/optimizer-15.safetensors; tril train --resume killed --quiet").code == 0);
  CHECK(shell.states("killed") == "1\n");
  CHECK((shell.evaluations("killed") == shell.evaluations("straight")));
}

TEST_CASE("tril train: after a kill the log tells of every step once") {
  const TinyShell shell;
  (void)shell.run(kStartAndAwait + "start book.txt --steps 4000000 --eval-every 200 --log-every 1 --out r" +
                  kDemanding + "\nawait '\"step\":230,' r/log.jsonl; kill -9 $pid; wait $pid");
  const int64_t done = shell.step("r/last.safetensors");
  REQUIRE(shell.run(cat("tril train --resume r --steps ", done + 50)).code == 0);
  std::istringstream lines(shell.read("r/log.jsonl"));
  int64_t steps = 0, evaluations = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "step") CHECK(event.at("step") == ++steps);
    evaluations += event.at("event") == "eval" ? 1 : 0;
  }
  CHECK(steps == done + 50);
  CHECK(evaluations == done / 200 + 1);
}

TEST_CASE("tril train: what goes on with an evaluation has no loss to tell of") {
  const TinyShell shell;
  const Outcome stopped = shell.run(kStartAndAwait + "start book.txt --steps 4000000 --eval-every 1000000 --out r" +
                                    kDemanding + "\nawait '\"step\":10,' r/log.jsonl; kill -TERM $pid; wait $pid");
  REQUIRE(stopped.code == 143);
  const std::string step = std::to_string(shell.step("r/last.safetensors"));
  const Outcome resumed = shell.run("tril train --resume r --steps " + step);
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, contains("step " + step + "/" + step + "  validation ") && !contains("  loss "));
}

TEST_CASE("tril train: a log that cannot be written costs one warning") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  std::filesystem::remove(shell.folder() / "r/log.jsonl");
  std::filesystem::create_directory(shell.folder() / "r/log.jsonl");
  const Outcome outcome = shell.run("tril train --resume r --steps 4 --log-every 1");
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.err, contains("warning: r/log.jsonl: expected a file to write to, got Is a directory"));
  CHECK(outcome.err.find("warning", outcome.err.find("warning") + 1) == std::string::npos);
}

TEST_CASE("tril train: a log torn by a kill goes on with whole lines, each step once") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  const std::string before = shell.read("r/log.jsonl"), later = "{\"event\":\"step\",\"step\":3,\"loss\":1}\n";
  shell.put("r/log.jsonl", before.substr(0, before.rfind("{\"event\":\"stop\"")) + later + "{\"event\":\"st");
  REQUIRE(shell.run("tril train --resume r --steps 3 --log-every 1").code == 0);
  int64_t step = 0;
  std::istringstream lines(shell.read("r/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") != "step") continue;
    CHECK(event.at("step") > step);
    step = event.at("step");
  }
  CHECK(step == 3);
}

TEST_CASE("tril train: the log's clock goes on where the run goes on, and each line has the time of day") {
  const TinyShell shell;
  const std::string stop = "kill -TERM $pid; wait $pid\n";
  const Outcome outcome =
      shell.run(kStartAndAwait + "start book.txt --out r --steps 4000000 --eval-every 300 --log-every 5" + kDemanding +
                "\nawait '\"step\":10,' r/log.jsonl; sleep 0.3; " + stop + "start --resume r; sleep 0.4; " + stop +
                "start --resume r; sleep 0.3; kill -9 $pid; wait $pid\n" + "start --resume r; sleep 0.3; " + stop);
  CHECK(outcome.code == 143);
  std::istringstream lines(shell.read("r/log.jsonl"));
  double seconds = 0;
  std::string time;
  int64_t resumed = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    INFO(line);
    resumed += event.at("event") == "resume" ? 1 : 0;
    CHECK(event.at("seconds") >= seconds);
    seconds = event.at("seconds");
    const auto told = event.at("time").get<std::string>();
    CHECK(told >= time);
    CHECK(told.size() == std::string("2024-02-29T23:59:59Z").size());
    CHECK(told.starts_with("20"));
    time = told;
  }
  CHECK(resumed == 3);
  CHECK(seconds > 0.6);
}

}  // namespace tril::test
