// A run and a model of an older version, kept in tests/golden/old_run: they load, go on and are sampled from, with the
// numbers that the version which made them gave. It trained on the numbers from 0 to 1999, a line of them:
//   --layers 1 --heads 2 --width 8 --context 8 --batch 4 --steps 20 --eval-every 10 --threads 1 --sample-length 20
//   --warmup 2 --lr 0.03 --dropout 0.1 --bias
#include <nlohmann/json.hpp>
#include <string>

#include "support/catch.h"
#include "train/program.h"

namespace tril::test {
namespace {

struct OldRun : Shell {
  OldRun() {
    std::string numbers = "0";
    for (int i = 1; i < 2000; ++i) numbers += " " + std::to_string(i);
    put("numbers.txt", numbers + "\n");
    REQUIRE(run("cp -r '" TRIL_GOLDEN "/old_run' old").code == 0);
  }
  [[nodiscard]] double loss(const std::string& model) const {
    return nlohmann::json::parse(run("tril eval " + model + " --validation numbers.txt --json").out)
        .at("loss")
        .get<double>();
  }
};

}  // namespace

TEST_CASE("older versions: a model gives the loss and the text that it gave") {
  const OldRun shell;
  CHECK(shell.loss("old") == Approx(2.3464968569643863).epsilon(1e-6));
  CHECK(shell.loss("old/last.safetensors") == Approx(2.35037561365076).epsilon(1e-6));
  CHECK(shell.run("tril sample old --seed 3 --length 40 --temperature 0.5").out ==
        " 1111 15 711 11  41  01111451  9    1 11\n");
  const auto info = nlohmann::json::parse(shell.run("tril info old --json").out);
  CHECK(info.at("step") == 10);
}

TEST_CASE("older versions: a run goes on to where its own version took it") {
  const OldRun shell;
  const Outcome outcome = shell.run("tril train --resume old numbers.txt --steps 30");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(shell.loss("old") == Approx(2.3214529226492115).epsilon(1e-5));
  CHECK(nlohmann::json::parse(shell.run("tril info old --json").out).at("step") == 30);
}

}  // namespace tril::test
