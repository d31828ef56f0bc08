// What tril train announces about a run: nothing that does not happen.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "train/tiny_shell.h"

namespace tril::test {
namespace {

// The run was refused with one line, and nothing was announced before.
void check_silent(const Outcome& outcome, const std::string& why) {
  INFO(outcome.err);
  CHECK(outcome.code != 0);
  CHECK(outcome.out.empty());
  CHECK(count_lines(outcome.err) == 1);
  CHECK_THAT(outcome.err, contains("error: ") && contains(why));
}

// The learning rates of a run that logs every step.
std::vector<double> rates(const TinyShell& shell, const std::string& run) {
  std::vector<double> out;
  std::istringstream lines(shell.read(run + "/log.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "step") out.push_back(event.at("lr"));
  return out;
}

}  // namespace

TEST_CASE("tril train: a run that is refused on resuming announces nothing") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  shell.put("other.txt", tiny_text(599) + "a");
  const std::string resume = "tril train --resume r --steps 350 --lr 0.02 --dtype bf16 ", many = "--threads 1000 ";
  check_silent(shell.run(resume + many + "--layers 2"), "layers: expected 1");
  check_silent(shell.run(resume + many + "--min-lr 1"), "min-lr: expected at most lr");
  check_silent(shell.run(resume + many + "--eval-every x"), "eval-every: expected a whole number");
  check_silent(shell.run(resume + many + "other.txt"), "expected the text that the model was trained on");
  check_silent(shell.run(resume + many + "none.txt"), "none.txt");
  REQUIRE(shell.run("mv r/optimizer-2.safetensors state").code == 0);
  check_silent(shell.run(resume + many), "expected the optimizer's state, which a run needs to go on");
  shell.put("r/optimizer-2.safetensors", "damaged");
  check_silent(shell.run(resume + many), "optimizer-2.safetensors: expected");
  REQUIRE(shell.run("mv state r/optimizer-2.safetensors").code == 0);
  const Outcome resumed = shell.run(resume + "--threads 1");
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, contains("steps: 350 from here on, was 2") && contains("lr: 0.02 from here on, was 0.01") &&
                              contains("run    r: 350 steps of 4 x 8 characters, bf16, 1 thread\n"));
  CHECK(resumed.err.find("from here on") < resumed.err.find("step 350/350"));
}

TEST_CASE("tril train: a run that cannot begin announces nothing") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  const std::string flags = "--threads 1000 --dtype bf16 --steps 4 ";
  check_silent(shell.train(flags + "--out r"), "r: expected a new or empty folder, got one with a run in it");
  check_silent(shell.train(flags + "--out book.txt"), "book.txt: expected a folder, got a file");
  check_silent(shell.run("ulimit -f 1; tril train book.txt --out small" + kDemanding + flags), "File too large");
  check_silent(shell.train(flags + "--context 1000 --out s"), "book.txt: expected a training part of at least 1000");
  const Outcome begun = shell.train(flags + "--out begun");
  CHECK(begun.code == 0);
  CHECK_THAT(begun.err, contains("run    begun: 4 steps") && contains("warning: threads: 1000 asked for"));
}

TEST_CASE("tril train: a warm-up longer than half of the steps is cut to that, and said") {
  const TinyShell shell;
  const std::string flags = " --log-every 1 --lr 0.01 --out ";
  const Outcome cut = shell.train("--warmup 100 --steps 50" + flags + "cut");
  CHECK(cut.code == 0);
  CHECK_THAT(cut.err, contains("warmup: 25 steps in place of 100, as it takes at most half of all\n"));
  const std::vector<double> told = rates(shell, "cut");
  REQUIRE(told.size() == 50);
  CHECK(*std::max_element(told.begin(), told.end()) == 0.01);
  CHECK(told[25] == 0.01);
  CHECK(told[49] < 2e-4);
  CHECK_THAT(shell.read("cut/config.json"), contains("\"warmup\": 100"));  // as asked for: for more steps it is right
  const Outcome whole = shell.train("--warmup 25 --steps 50" + flags + "whole");
  CHECK_THAT(whole.err, !contains("warmup"));
  CHECK(rates(shell, "whole") == told);
  CHECK_THAT(shell.run("tril train --resume cut --steps 60").err, contains("warmup: 30 steps in place of 100"));
  CHECK_THAT(shell.run("tril train --resume cut --steps 200").err, !contains("warmup"));
}

TEST_CASE("tril train: the time left is said from the second step on, for the first tells nothing about it") {
  const TinyShell shell;
  const Outcome one = shell.train("--steps 1 --out one"), two = shell.train("--steps 2 --out two");
  CHECK_THAT(one.err, contains("step 1/1  loss ") && !contains(" left"));
  CHECK_THAT(two.err, contains("step 2/2  loss ") && contains(" characters/s  0:00 left"));
}

}  // namespace tril::test
