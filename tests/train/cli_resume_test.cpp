// Runs that are stopped, killed, out of disk space or given a wrong folder or text, and how they go on.
#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "train/base/files.h"
#include "train/tiny_shell.h"

namespace tril::test {

TEST_CASE("tril train: killed at any moment and resumed, a run ends with the same files") {
  const TinyShell shell;
  const std::string flags = kDemanding + "--steps 400 --eval-every 20 --quiet";
  REQUIRE(shell.train(flags + " --out straight").code == 0);
  const Outcome outcome = shell.run(
      "start() {\n"
      "  if [ -f killed/last.safetensors ]; then \"$TRIL\" train --resume killed --quiet & else\n"
      "    rm -rf killed; \"$TRIL\" train book.txt --out killed" +
      flags +
      " & fi; pid=$!\n"
      "}\n"
      "for delay in 0.02 0.05 0.03 0.08 0.13 0.04 0.2 0.06 0.11; do start; sleep $delay; kill -9 $pid; wait $pid; "
      "done\n"
      "start; wait $pid");
  CHECK(outcome.code == 0);
  for (const char* name : {"/last.safetensors", "/model.safetensors", "/optimizer-400.safetensors"})
    CHECK((shell.read(std::string("killed") + name) == shell.read(std::string("straight") + name)));
  CHECK((shell.evaluations("killed") == shell.evaluations("straight")));
  CHECK(shell.states("killed") == "1\n");
}

TEST_CASE("tril train: the way to go on that it names has the text where that came through standard input") {
  const TinyShell shell;
  const Outcome stopped =
      shell.run(kStartAndAwait + "\"$TRIL\" train - --out piped --steps 100000" + kDemanding +
                "< book.txt & pid=$!\nawait '\"step\":10,' piped/log.jsonl; kill -TERM $pid; wait $pid");
  CHECK(stopped.code == 143);
  CHECK_THAT(stopped.err, contains("to go on: ") && contains("/tril train --resume piped - < TEXT"));
}

TEST_CASE("tril train: a signal finishes the step, saves, says how to go on, and the run ends the same") {
  const TinyShell shell;
  const std::string flags = kDemanding + "--steps 3000 --eval-every 500";
  REQUIRE(shell.train(flags + " --out straight").code == 0);
  for (const auto& [signal, code] : {std::pair{"INT", 130}, std::pair{"TERM", 143}, std::pair{"HUP", 129}}) {
    const std::string run = std::string("run-") + signal;
    const Outcome stopped =
        shell.run(kStartAndAwait + "start book.txt --out " + run + flags + "\nawait '\"step\":10,' " + run +
                  "/log.jsonl; kill -" + signal + " $pid; wait $pid");
    CHECK(stopped.code == code);
    CHECK_THAT(stopped.err, contains("stopped at step ") && contains("/tril train --resume " + run));
    CHECK_THAT(stopped.out, contains("/tril sample " + run));
    const int64_t step = shell.step(run + "/last.safetensors");
    CHECK(step >= 10);
    CHECK(step < 3000);
    CHECK(shell.run("tril train --resume " + run).code == 0);
    for (const char* name : {"/last.safetensors", "/model.safetensors", "/optimizer-3000.safetensors"})
      CHECK((shell.read(run + name) == shell.read(std::string("straight") + name)));
  }
}

TEST_CASE("tril train: stopped by a signal it ends with the signal's code, also where nobody can read what it says") {
  const TinyShell shell;
  for (const char* output : {"/dev/full", "/dev/null"}) {
    const Outcome stopped = shell.run(kStartAndAwait + "start book.txt --steps 1000000 --out r" + kDemanding + ">" +
                                      output + "\nawait '\"step\":10,' r/log.jsonl; kill -HUP $pid; wait $pid");
    CHECK(stopped.code == 129);
    CHECK(shell.step("r/last.safetensors") >= 10);
    CHECK(shell.run("rm -rf r").code == 0);
  }
}

TEST_CASE("tril train: a run ends with the same files at any number of threads, also where that changes on the way") {
  const TinyShell shell;
  const std::string flags = kDemanding + "--width 64 --context 48 --batch 8 --steps 200 --eval-every 100 --quiet";
  REQUIRE(shell.train(flags + " --out straight").code == 0);
  const Outcome other = shell.run(kStartAndAwait + "export OMP_NUM_THREADS=2\nstart book.txt --out other " + flags +
                                  "\nawait '\"step\":10,' other/log.jsonl; kill -TERM $pid; wait $pid\n"
                                  "OMP_NUM_THREADS=1 tril train --resume other --quiet");
  CHECK(other.code == 0);
  CHECK_THAT(shell.read("other/log.jsonl"), contains("\"threads\":2") && contains("\"threads\":1,"));
  for (const char* name : {"/last.safetensors", "/model.safetensors", "/optimizer-200.safetensors"})
    CHECK((shell.read(std::string("other") + name) == shell.read(std::string("straight") + name)));
}

TEST_CASE("tril train: mixed precision learns as f32 does, and a stopped run ends with the same files") {
  const TinyShell shell;
  const auto loss_of = [&](const std::string& run) {
    return nlohmann::json::parse(shell.run("tril eval " + run + " --json").out).at("loss").get<double>();
  };
  std::string lines;
  while (lines.size() < 2000) lines += "abcdefgh\n";
  shell.put("lines.txt", lines);
  const std::string easy =
      "tril train lines.txt --layers 1 --heads 2 --width 32 --context 16 --batch 4 --steps 150 --lr 1e-2 --warmup 5 ";
  REQUIRE(shell.run(easy + "--out exact").code == 0);
  const Outcome mixed = shell.run(easy + "--out mixed --dtype bf16");
  REQUIRE(mixed.code == 0);
  CHECK_THAT(mixed.err, contains(", bf16, "));
  CHECK(loss_of("exact") < 0.25);  // 2.2 at first; only what a window begins with cannot be known
  CHECK(loss_of("mixed") < 0.25);
  CHECK((shell.read("mixed/optimizer-150.safetensors") != shell.read("exact/optimizer-150.safetensors")));

  const std::string flags = kDemanding + "--width 32 --steps 400 --eval-every 200 --dtype bf16 --threads 2 ";
  REQUIRE(shell.train(flags + "--out straight").code == 0);
  const Outcome other = shell.run(
      kStartAndAwait + "start book.txt --out other " + flags +
      "\nawait '\"step\":10,' other/log.jsonl; kill -TERM $pid; wait $pid\ntril train --resume other --threads 1");
  CHECK(other.code == 0);
  CHECK((shell.read("other/optimizer-400.safetensors") == shell.read("straight/optimizer-400.safetensors")));
}

TEST_CASE("tril train: dtype is one of three, and says where bf16 is slow") {
  const TinyShell shell;
  const Outcome chosen = shell.train("--steps 1 --out chosen --dtype auto");
  CHECK(chosen.code == 0);
  CHECK_THAT(shell.read("chosen/config.json"), contains("\"dtype\": \"auto\""));
  const Outcome wrong = shell.train("--dtype f16");
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, contains("dtype: expected auto, f32 or bf16, got 'f16'"));
  const std::string slow = "export ONEDNN_MAX_CPU_ISA=AVX2; tril train book.txt --steps 1 --quiet" + kDemanding;
  const Outcome asked = shell.run(slow + "--out asked --dtype bf16"),
                automatic = shell.run(slow + "--out f --dtype auto");
  CHECK(asked.code == 0);
  CHECK_THAT(asked.err, contains("warning: dtype: bf16 asked for, but this processor (") && contains("slower than"));
  CHECK(automatic.code == 0);
  CHECK(automatic.err.empty());
}

TEST_CASE("tril train: a dropout that is changed on resuming counts from there on, and recomputing changes nothing") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 4 --out half --quiet").code == 0);
  const auto go_on = [&](const std::string& out, const std::string& flags) {
    const Outcome outcome = shell.run("cp -r half " + out + " && tril train --resume " + out + " --steps 8 " + flags);
    CHECK(outcome.code == 0);
    const auto file = shell.read(out + "/optimizer-8.safetensors");
    return file;
  };
  const std::string plain = go_on("a", ""), recomputed = go_on("b", "--recompute"),
                    dropped = go_on("c", "--dropout 0.5");
  CHECK((recomputed == plain));
  CHECK((dropped != plain));
}

TEST_CASE("tril train: a signal is seen in the middle of a long evaluation and a long sample") {
  const TinyShell shell;
  shell.put("long.txt", tiny_text(4'000'000));
  for (const char* flags : {"--val-fraction 0.9", "--eval-tokens 100 --sample-length 1000000"}) {
    const Outcome stopped = shell.run(kStartAndAwait + "start long.txt --steps 1 --out r" + kDemanding + flags +
                                      "\nawait '\"step\":1,' r/log.jsonl; sleep 0.05; kill -TERM $pid; wait $pid\n"
                                      "code=$?; rm -rf r; exit $code");
    CHECK((stopped.code == 143 || stopped.code == 0));  // 0: the machine was faster than the signal
  }
}

TEST_CASE("tril train: resuming a finished run changes nothing, and more steps go on from its end") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 4 --out r").code == 0);
  const std::string before = shell.read("r/last.safetensors");
  const Outcome again = shell.run("tril train --resume r");
  CHECK(again.code == 0);
  CHECK_THAT(again.err, contains("step 4 of 4: all done"));
  CHECK_THAT(again.out, contains("model: r/model.safetensors"));
  CHECK((shell.read("r/last.safetensors") == before));
  const Outcome more = shell.run("tril train --resume r --steps 6 --lr 0.005");
  CHECK(more.code == 0);
  CHECK_THAT(more.err, contains("steps: 6 from here on, was 4") && contains("lr: 0.005 from here on, was 0.01"));
  CHECK(shell.step("r/last.safetensors") == 6);
  CHECK_THAT(shell.read("r/config.json"), contains("\"steps\": 6") && contains("\"lr\": 0.005"));
}

TEST_CASE("tril train: what is part of the model cannot be changed on resuming") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  const auto refused = [&](const std::string& flags, const std::string& text) {
    const Outcome outcome = shell.run("tril train --resume r " + flags);
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err, contains(text));
  };
  refused("--context 16", "context: expected 8, as the run's model has it, got 16; start a new run");
  refused("--layers 2", "layers: expected 1");
  refused("--bias", "bias: expected false, as the run's model has it, got true");
  refused("--val-fraction 0.2", "val-fraction: expected 0.1");
  refused("--tokens byte", "tokens: expected char");
  refused("--preset baby", "--preset: expected not to be given with --resume, got baby");
  refused("--out x", "--out: expected not to be given with --resume");
  CHECK(shell.run("tril train --resume r --context 8 --no-bias").code == 0);
}

TEST_CASE("tril train: resuming wants the same text, wherever it lies now") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  shell.put("other.txt", tiny_text(599) + "a");
  shell.put("longer.txt", tiny_text(601));
  const auto error = [&](const std::string& rest) {
    const Outcome outcome = shell.run("tril train --resume r --steps 3 " + rest);
    CHECK(outcome.code == 1);
    return outcome.err;
  };
  CHECK_THAT(error("other.txt"),
             contains("other.txt: expected the text that the model was trained on, got another of the"));
  CHECK_THAT(error("longer.txt"), contains("longer.txt: expected the text that the model was trained on, of 600 bytes, "
                                           "got 601 bytes"));
  std::filesystem::rename(shell.folder() / "book.txt", shell.folder() / "moved.txt");
  CHECK_THAT(error(""),
             contains("book.txt: expected the text that the model was trained on, got none of that name; give"));
  CHECK(shell.run("tril train --resume r --steps 3 moved.txt").code == 0);
  CHECK(shell.run("tril train --resume r --steps 4").code == 0);  // remembers where it was found
  REQUIRE(shell.run("tril train - < moved.txt" + kDemanding + "--steps 2 --out piped").code == 0);
  const Outcome piped = shell.run("tril train --resume piped --steps 3");
  CHECK(piped.code == 1);
  CHECK_THAT(piped.err, contains("got standard input, which is over; give it again: "));
  CHECK(shell.run("tril train - --resume piped --steps 3 < moved.txt").code == 0);
}

TEST_CASE("tril train: what flags change on resuming stays changed, also where the run was done or is killed") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 4 --out r").code == 0);
  REQUIRE(shell.run("tril train --resume r --seed 7 --lr 0.02").code == 0);
  const auto known = [&] { return nlohmann::json::parse(shell.run("tril info --json r/last.safetensors").out); };
  CHECK(known().at("config").at("seed") == 7);
  CHECK(known().at("config").at("lr") == 0.02);
  CHECK_THAT(shell.read("r/config.json"), contains("\"seed\": 7,"));
  (void)shell.run(kStartAndAwait + "start --resume r --steps 4000000 --eval-every 4000000\n" +
                  "await '\"step\":10,' r/log.jsonl; kill -9 $pid; wait $pid");
  CHECK(known().at("config").at("steps") == 4000000);
  const Outcome fewer = shell.run("tril train --resume r --steps 3");
  CHECK(fewer.code == 2);
  CHECK_THAT(fewer.err, contains("steps: expected at least 5, which are done, got 3"));
}

TEST_CASE("tril train: what cannot be trained with is refused on resuming, and not stored") {
  const TinyShell shell;
  REQUIRE(
      shell
          .run("tril train book.txt --layers 1 --heads 2 --width 8 --context 400 --val-fraction 0 --batch 2 --steps 4 "
               "--out r")
          .code == 0);
  const std::string before = shell.read("r/config.json");
  const Outcome refused = shell.run("tril train --resume r --steps 9 --batch 1000000");
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, contains("error: model: expected one to train within the"));
  CHECK(count_lines(refused.err) == 1);
  CHECK(shell.read("r/config.json") == before);
  CHECK(shell.run("tril train --resume r --steps 9").code == 0);
  const Outcome unnamed = shell.run("tril train --resume ''");
  CHECK(unnamed.code == 2);
  CHECK_THAT(unnamed.err, contains("--resume: expected a run's folder, got an empty name"));
}

TEST_CASE("tril train: a best model that cannot be read is made again from the newest") {
  const TinyShell shell;
  for (const char* const steps : {"4", "6"}) {
    REQUIRE(shell.train(std::string("--steps 4 --out r") + steps).code == 0);
    const std::string run = std::string("r") + steps;
    REQUIRE(shell.run("head -c 100 " + run + "/model.safetensors > cut && mv cut " + run + "/model.safetensors").code ==
            0);
    const Outcome resumed = shell.run("tril train --resume " + run + " --steps " + steps);
    CHECK(resumed.code == 0);
    CHECK_THAT(resumed.err,
               contains("; it is kept as " + run + "/model.safetensors.unreadable, the newest model takes its place"));
    CHECK(shell.read(run + "/model.safetensors.unreadable").size() == 100);
    CHECK(shell.run("tril sample " + run + " --length 5").code == 0);
  }
  // Whatever is in its place is kept, also the second time.
  REQUIRE(shell.run("rm r4/model.safetensors && mkdir r4/model.safetensors").code == 0);
  const Outcome blocked = shell.run("tril train --resume r4 --steps 5");
  CHECK(blocked.code == 0);
  CHECK_THAT(blocked.err, contains("r4/model.safetensors: expected the best model, got a folder; it is kept as "
                                   "r4/model.safetensors.unreadable-2, the newest model takes its place") &&
                              !contains("nan"));
  CHECK_THAT(shell.read("r4/log.jsonl"), contains("\"step\":5") && !contains("nan"));
  CHECK(shell.step("r4/last.safetensors") == 5);
  CHECK(shell.run("rmdir r4/model.safetensors.unreadable-2").code == 0);
}

// oneDNN points the stack pointer elsewhere in its products: a signal handler's frame would overwrite the heap.
TEST_CASE("tril train: no signal can interrupt a thread that computes") {
  const TinyShell shell;
  const Outcome masks = shell.run(kStartAndAwait + "start book.txt --steps 4000000 --threads 2 --out r" + kDemanding +
                                  "\nawait '\"step\":10,' r/log.jsonl\n"
                                  "for task in /proc/$pid/task/*; do grep SigBlk $task/status; done\n"
                                  "kill $pid; wait $pid");
  std::istringstream lines(masks.out);
  int tasks = 0, open = 0;
  for (std::string name, mask; lines >> name >> mask && name == "SigBlk:"; ++tasks) {
    constexpr uint64_t kStops = 1u << (SIGINT - 1) | 1u << (SIGTERM - 1) | 1u << (SIGHUP - 1);
    open += (std::stoull(mask, nullptr, 16) & kStops) == kStops ? 0 : 1;
  }
  CHECK(tasks >= 2);
  CHECK(open == 1);  // that of the thread that waits for them
  CHECK(masks.code == 143);
}

TEST_CASE("tril train: a signal that comes twice at once, as timeout sends it, saves") {
  const TinyShell shell;  // steps long enough for both to fall into one
  const Outcome stopped = shell.run(
      kStartAndAwait +
      "start book.txt --layers 2 --heads 2 --width 128 --context 64 --batch 64 --steps 4000 --log-every 1 --out r\n"
      "await '\"step\":2,' r/log.jsonl; kill -TERM $pid; sleep 0.01; kill -TERM $pid; wait $pid");
  CHECK(stopped.code == 143);
  CHECK(shell.step("r/last.safetensors") >= 2);
  CHECK_THAT(shell.read("r/log.jsonl"), contains("\"event\":\"stop\""));
}

TEST_CASE("tril train: a quiet run says that it was stopped, too") {
  const TinyShell shell;
  const Outcome stopped = shell.run(kStartAndAwait + "start book.txt --steps 4000000 --quiet --out r" + kDemanding +
                                    "\nawait '\"step\":10,' r/log.jsonl; kill -INT $pid; wait $pid");
  CHECK(stopped.code == 130);
  CHECK_THAT(stopped.err, contains("warning: stopped at step ") && contains(" of 4000000 and saved; to go on: "));
}

TEST_CASE("tril train: a run inside the folder that it trains on is no part of its text") {
  const TinyShell shell;
  REQUIRE(shell.run("mkdir notes && cp book.txt notes/a.txt && cd notes && tril train . --out r --steps 4" + kDemanding)
              .code == 0);
  CHECK(shell.run("cd notes && tril train --resume r --steps 6").code == 0);
  CHECK(shell.run("tril eval notes/r").code == 0);
  const Outcome again = shell.run("tril train notes --out other --steps 2" + kDemanding);
  CHECK(again.code == 0);
  CHECK_THAT(again.err, contains("notes: 1 run left out"));
}

TEST_CASE("tril train: what stands in a file's place costs a warning, and a removed folder comes back") {
  const TinyShell shell;
  const std::string flags = kDemanding + "--steps 6000 --eval-every 2000 --out ";
  const Outcome blocked = shell.run(kStartAndAwait + "start book.txt " + flags +
                                    "a\nawait '\"step\":10,' a/log.jsonl\n" + "mkdir a/model.safetensors; wait $pid");
  CHECK(blocked.code == 1);
  CHECK_THAT(blocked.err,
             contains("the best model was not saved: a/model.safetensors: expected a place for a regular file"));
  CHECK(shell.step("a/last.safetensors") == 6000);
  const Outcome removed = shell.run(kStartAndAwait + "start book.txt " + flags +
                                    "b\nawait '\"step\":10,' b/log.jsonl\n" + "rm -r b; wait $pid");
  CHECK(removed.code == 0);
  CHECK_THAT(removed.err, contains("warning: b: expected the run's folder, got none; it is made anew"));
  CHECK(shell.step("b/model.safetensors") > 0);
  CHECK_THAT(shell.read("b/log.jsonl"), contains("\"reason\":\"done\""));
  CHECK(shell.read("b/config.json") == shell.read("a/config.json"));
  // If the folder is moved, it is made again, too, and no other process can use it.
  const Outcome moved = shell.run(kStartAndAwait + "start book.txt " + flags +
                                  "c\nawait '\"step\":10,' c/log.jsonl; mv c d\nawait '\"step\":2000,' c/log.jsonl\n"
                                  "tril train --resume c; wait $pid");
  CHECK(moved.code == 0);
  CHECK_THAT(moved.err, contains("c: expected a folder that nobody else uses, got one that another process trains in"));
}

TEST_CASE("tril train: another folder in the run's place is taken if it is empty, and else left alone") {
  const TinyShell shell;
  const std::string start = kStartAndAwait + "start book.txt --steps 4000000 --eval-every 500" + kDemanding + "--out ";
  const auto begun = [](const std::string& run) { return run + "\nawait '\"step\":10,' " + run + "/log.jsonl\n"; };
  const auto evaluated = [](const std::string& run) {
    return "\nawait '\"event\":\"eval\",\"step\":[1-9]*000,' " + run + "/log.jsonl\n";
  };
  const std::string stop = "\nkill -TERM $pid; wait $pid";
  const Outcome empty =
      shell.run(start + begun("a") + "mv a b; mkdir a" + evaluated("a") + "tril train --resume a" + stop);
  CHECK(empty.code == 143);
  CHECK_THAT(empty.err, contains("warning: a: expected the run's folder, got another; the run goes on in it") &&
                            contains("a: expected a folder that nobody else uses"));
  CHECK(shell.step("a/model.safetensors") > 0);
  CHECK(shell.read("a/config.json") == shell.read("b/config.json"));
  CHECK_THAT(shell.read("a/log.jsonl"), contains("\"reason\":\"signal\""));

  REQUIRE(shell.train("--steps 1 --out other").code == 0);
  const std::string whole = shell.read("other/last.safetensors");
  const Outcome full = shell.run(start + begun("c") + "mv c d; mv other c" + evaluated("d") + stop);
  CHECK(full.code == 1);
  CHECK_THAT(full.err, contains("the checkpoint was not saved: c: expected the run's folder, got another, with ") &&
                           contains(" in it; move it away"));
  CHECK((shell.read("c/last.safetensors") == whole));
  CHECK(shell.states("c") == "1\n");

  // The same folder without its lock is locked again.
  const Outcome unlocked =
      shell.run(start + begun("e") + "rm e/.lock" + evaluated("e") + "tril train --resume e" + stop);
  CHECK(unlocked.code == 143);
  CHECK_THAT(unlocked.err, contains("e: expected a folder that nobody else uses") && !contains("warning"));
}

TEST_CASE("tril train: a beginning that could not be saved leaves a folder that can be used") {
  const TinyShell shell;
  REQUIRE(shell.run("ulimit -f 1; tril train book.txt --out r --steps 2" + kDemanding).code == 1);
  CHECK(shell.train("--out r --steps 2").code == 0);
}

TEST_CASE("tril train: resuming what is no run fails in one line") {
  const TinyShell shell;
  const auto error = [&](const std::string& folder) {
    const Outcome outcome = shell.run("tril train --resume " + folder);
    CHECK(outcome.code == 1);
    CHECK(count_lines(outcome.err) == 1);
    return outcome.err;
  };
  CHECK_THAT(error("none"), contains("none: expected a run folder, got none of that name"));
  CHECK_THAT(error("book.txt"), contains("book.txt: expected a run folder, got a file"));
  shell.put("folder/x", "");
  CHECK_THAT(error("folder"), contains("folder: expected a run to resume, with last.safetensors, got none"));
  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  const DirectoryLock held(shell.folder() / "r");
  CHECK_THAT(error("r"),
             contains("r: expected a folder that nobody else uses, got one that another process trains in"));
}

TEST_CASE("tril train: a loss that is not finite ends the run and keeps the last good checkpoint") {
  const TinyShell shell;
  const auto check_ended = [&](const std::string& flags, const std::string& found, int64_t last) {
    const Outcome outcome = shell.train("--steps 50 --warmup 20 --clip 0 --out r " + flags);
    INFO(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err,
               contains("expected ") && contains(found) &&
                   contains(cat("the last good checkpoint is that of step ", last, ", r/last.safetensors")));
    CHECK(shell.step("r") == last);
    CHECK(shell.run("tril eval r").code == 0);
    std::filesystem::remove_all(shell.folder() / "r");
  };
  check_ended("--eval-every 2 --lr 1e7", "finite gradient, got nan, first in ", 2);
  check_ended("--eval-every 1 --lr 1e30", "validation loss: expected a finite one, got nan", 0);
}

TEST_CASE("tril train: a full disk costs no checkpoint, and the exit code tells") {
  const TinyShell shell;
  // The limit on a file's size stands for the disk: too small for the state, as it would be when space runs out.
  const Outcome refused = shell.run("ulimit -f 1; tril train book.txt" + kDemanding + "--steps 2 --out small");
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err,
             contains("optimizer-0.safetensors") && contains("File too large") && contains("bytes needed"));

  REQUIRE(shell.train("--steps 2 --out r").code == 0);
  const std::string before = shell.read("r/last.safetensors");
  const Outcome full = shell.run("ulimit -f 6; tril train --resume r --steps 6 --eval-every 2");
  CHECK(full.code == 1);
  CHECK_THAT(full.err, contains("warning: the checkpoint was not saved: ") && contains("step 6/6") &&
                           contains("error: r: expected the run's last save to work"));
  CHECK((shell.read("r/last.safetensors") == before));
  CHECK(shell.run("tril train --resume r --steps 6").code == 0);
  // A state whose model did not fit is removed, as it would take the space that the next save needs.
  const Outcome late = shell.run(kStartAndAwait + "start --resume r --steps 6000 --eval-every 2000\n" +
                                 "await '\"step\":10,' r/log.jsonl; rm r/last.safetensors; "
                                 "mkdir r/last.safetensors; wait $pid; ls r | grep optimizer");
  CHECK_THAT(late.err,
             contains("the checkpoint was not saved: r/last.safetensors: expected a place for a regular file"));
  CHECK_THAT(late.out,
             contains("optimizer-7.safetensors\n") && !contains("optimizer-2000") && !contains("optimizer-6000"));
  for (const auto& entry : shell.folder().names()) CHECK_FALSE(entry.starts_with(".tril-tmp"));
}

}  // namespace tril::test
