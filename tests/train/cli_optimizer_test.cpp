// The optimizer of a run, from the command line to its files and back.
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "train/tiny_shell.h"

namespace tril::test {

TEST_CASE("tril train: each optimizer takes its own options, and help, configuration and log tell them") {
  const TinyShell shell;
  CHECK_THAT(shell.run("tril train --help").out, contains("--optimizer NAME") && contains("--momentum X"));
  const std::string sgd = " --optimizer sgd --lr 0.2 --quiet ";
  const auto state_of = [&](const std::string& run, const std::string& flags) {
    REQUIRE(shell.train("--steps 4 --out " + run + " " + flags).code == 0);
    return shell.read(run + "/optimizer-4.safetensors");
  };
  const std::string adamw_state = state_of("adamw", "--quiet"), sgd_state = state_of("sgd", "--momentum 0.8" + sgd);
  CHECK((state_of("plain", "--momentum 0" + sgd) != sgd_state));
  CHECK((state_of("betas", "--momentum 0.8 --beta1 0.5" + sgd) == sgd_state));
  CHECK((state_of("still", "--momentum 0") == adamw_state));
  for (const auto& [run, momentum] : {std::pair{"sgd", 0.8}, std::pair{"plain", 0.0}}) {
    const auto config = nlohmann::json::parse(shell.read(std::string(run) + "/config.json"));
    CHECK(config.at("optimizer") == "sgd");
    CHECK(config.at("momentum") == momentum);
    CHECK_THAT(shell.read(std::string(run) + "/log.jsonl"), contains("\"optimizer\":\"sgd\""));
  }
  const Outcome changed = shell.run("tril train --resume sgd --steps 6 --momentum 0.5");
  CHECK(changed.code == 0);
  CHECK_THAT(changed.err, contains("momentum: 0.5 from here on, was 0.8"));
  CHECK(nlohmann::json::parse(shell.read("sgd/config.json")).at("momentum") == 0.5);
  const Outcome wrong = shell.train("--optimizer adam --out none");
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, contains("optimizer: expected adamw or sgd, got 'adam'"));
}

TEST_CASE(
    "tril train: with gradient descent a stopped run ends with the same files, and another optimizer is refused") {
  const TinyShell shell;
  const std::string flags = " --optimizer sgd --momentum 0.8 --lr 0.2 --eval-every 20 --quiet ";
  REQUIRE(shell.train("--steps 80 --out straight" + flags).code == 0);
  REQUIRE(shell.train("--steps 80 --out adamw --eval-every 20 --quiet").code == 0);
  CHECK((shell.evaluations("straight") != shell.evaluations("adamw")));
  const Outcome stopped = shell.run(kStartAndAwait + "start book.txt --out stopped --steps 100000" + kDemanding +
                                    flags + "\nawait '\"step\":10,' stopped/log.jsonl; kill -TERM $pid; wait $pid");
  REQUIRE(stopped.code == 143);
  const std::string before = shell.read("stopped/last.safetensors");
  const Outcome other = shell.run("tril train --resume stopped --optimizer adamw");
  CHECK(other.code == 1);
  CHECK_THAT(other.err, contains("expected the state of AdamW, got that of SGD"));
  CHECK((shell.read("stopped/last.safetensors") == before));

  REQUIRE(
      shell
          .run(kStartAndAwait + "start book.txt --out again --steps 80" + kDemanding + flags +
               "\nawait '\"step\":1,' again/log.jsonl; kill -TERM $pid; wait $pid; tril train --resume again --quiet")
          .code == 0);
  for (const char* name : {"/last.safetensors", "/model.safetensors", "/optimizer-80.safetensors"})
    CHECK((shell.read(std::string("again") + name) == shell.read(std::string("straight") + name)));
}

}  // namespace tril::test
