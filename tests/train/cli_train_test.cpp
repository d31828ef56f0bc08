// tril train from outside: which run it makes of which text and configuration, and what it leaves alone.
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "train/tiny_shell.h"

namespace tril::test {

TEST_CASE("tril train: a window and shared heads of keys are the model's, in training, sampling and evaluating") {
  const PlainShell shell;
  const Outcome trained = shell.train("--heads 4 --kv-heads 2 --window 3 --steps 20 --out r");
  REQUIRE(trained.code == 0);
  const Outcome sampled = shell.run("tril sample r --length 30 --seed 1"), evaluated = shell.run("tril eval r --json");
  CHECK(sampled.code == 0);
  CHECK(evaluated.code == 0);
  const auto config = nlohmann::json::parse(shell.run("tril info r --json").out).at("config");
  CHECK(config.at("kv-heads") == 2);
  CHECK(config.at("window") == 3);
  CHECK(shell.run("tril train --resume r --steps 22").code == 0);
  check_usage_error(shell.run("tril train --resume r --window 4"), "window");
}

TEST_CASE("tril train: what it says to sample with works as it is, whatever the folder's name") {
  const PlainShell shell;
  if (std::system("command -v bash >/dev/null") != 0) {
    WARN("no bash here: not checked");
    return;
  }
  for (const char* name :
       {"plain", "two words", "it'\\''s", "$HOME", "a\nb", "\x1b[31m", "\xC2\x9B!", "\xFF\\'\\''q"}) {
    const Outcome trained = shell.train(std::string("--steps 1 --out './") + name + "'");
    REQUIRE(trained.code == 0);
    const size_t begin = trained.out.find("sample from it: ") + 16;
    shell.put("command", trained.out.substr(begin, trained.out.rfind(')') - begin) + " --length 5");
    const Outcome sampled = shell.run("bash ./command");
    INFO(name << ": " << sampled.err);
    CHECK(sampled.code == 0);
  }
}

TEST_CASE("tril train: a name for a run has no characters that cannot be shown") {
  const PlainShell shell;
  REQUIRE(shell.run("cp book.txt \"$(printf '\\302\\233\\342\\200\\256 x')\"").code == 0);
  REQUIRE(shell.run("tril train ./*x --steps 1" + kPlain).code == 0);
  CHECK(shell.has("runs/___x"));
}

TEST_CASE("tril train: makes a run folder named after the text, and never touches one that exists") {
  const PlainShell shell;
  const Outcome first = shell.train("--steps 4 --eval-every 2");
  CHECK(first.code == 0);
  CHECK(count_lines(first.out) == 1);
  CHECK_THAT(first.out, contains("model: runs/book/model.safetensors (validation loss ") &&
                            contains("sample from it: /") && contains("/tril sample runs/book)"));
  CHECK_THAT(first.err, contains("600 characters, 9 of them different; 540 to train on, 60 to validate with") &&
                            contains("step 4/4  loss ") && contains("  | "));
  const std::string model = shell.read("runs/book/model.safetensors"), log = shell.read("runs/book/log.jsonl");
  const Outcome second = shell.train("--steps 2");
  CHECK_THAT(second.out, contains("runs/book-2/model.safetensors"));
  CHECK((shell.read("runs/book/model.safetensors") == model));
  CHECK(shell.read("runs/book/log.jsonl") == log);
  for (const char* name : {"model.safetensors", "last.safetensors", "optimizer-4.safetensors", "config.json"})
    CHECK(shell.has(std::string("runs/book/") + name));

  std::vector<std::string> events;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line).at("event"));
  CHECK(events == std::vector<std::string>{"start", "step", "eval", "sample", "eval", "sample", "stop"});
}

TEST_CASE("tril train: reads files, folders and standard input") {
  const PlainShell shell;
  CHECK_THAT(shell.run("tril train - < book.txt" + kPlain + "--steps 1").out, contains("runs/stdin/"));
  shell.put("notes/a.txt", tiny_text(300));
  shell.put("notes/b.txt", tiny_text(300));
  CHECK_THAT(shell.run("tril train notes/" + kPlain + "--steps 1").out, contains("runs/notes/"));
  CHECK_THAT(shell.run("tril train --out 'a b/c' book.txt" + kPlain + "--steps 1 --quiet").out,
             contains("model: a b/c/model.safetensors") && contains("tril sample 'a b/c')"));
  CHECK(shell.run("tril train --out new --steps 1 -- --strange").code == 1);  // no such file as --strange
}

TEST_CASE("tril train: the built-in stories come with the best loss that any model could reach") {
  const PlainShell shell;
  const Outcome outcome = shell.run("tril train" + kPlain + "--steps 2 --eval-tokens 1000 --quiet --out r");
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(shell.read("r/log.jsonl"), contains("\"best_possible\":"));
  const auto json = nlohmann::json::parse(shell.run("tril eval r --json").out);
  CHECK(json.at("loss").get<double>() > json.at("best_possible").get<double>());
}

TEST_CASE("tril train: a text that cannot be trained on is refused before a folder is made") {
  const PlainShell shell;
  shell.put("ten.txt", "0123456789");
  check_failure(shell.run("tril train ten.txt"), "ten.txt: expected a training part of at least 64 + 1 tokens");
  shell.put("empty.txt", "");
  check_failure(shell.run("tril train empty.txt"), "empty.txt: expected a text, got an empty file");
  shell.put("latin.txt", tiny_text(7047) + "\x92" + tiny_text());
  check_failure(shell.run("tril train latin.txt"), "latin.txt: expected UTF-8 text, got byte 0x92 at offset 7047");
  CHECK_THAT(shell.run("tril train latin.txt").err, contains("--tokens byte"));
  check_failure(shell.run("tril train none.txt"), "none.txt: expected a file, got none of that name");
  shell.put("run/last.safetensors", "");
  check_failure(shell.run("tril train run"), "run: expected a folder of texts, got a run's folder; to go on");
  check_failure(shell.train("--val-fraction 0.001"),
                "book.txt: expected a validation part of at least 2 tokens, got 1");
  check_failure(shell.run("tril train book.txt --layers 4096 --width 65536 --heads 1"),
                "model: expected one to train within");
  check_failure(shell.run("tril train /dev/zero"), "/dev/zero: expected a regular file, got a device");
  CHECK_FALSE(shell.has("runs"));
  CHECK(shell.run("tril train latin.txt --tokens byte --steps 1" + kPlain).code == 0);
}

TEST_CASE("tril train: of a text of bytes it does not tell how many are different") {
  const PlainShell shell;
  CHECK_THAT(shell.run("tril train book.txt --tokens byte --steps 1 --out r" + kPlain).err,
             contains(": 600 bytes; 540 to train on") && !contains("different"));
}

TEST_CASE("tril train: one distinct character is learned at once, with a warning") {
  const PlainShell shell;
  shell.put("a.txt", std::string(1000, 'a'));
  const Outcome outcome = shell.run("tril train a.txt --steps 3 --out r" + kPlain);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.err, contains("warning: the text has one distinct character"));
  CHECK_THAT(outcome.out, contains("validation loss 0.0000"));
}

TEST_CASE("tril train: a folder that is not new or empty is refused and left alone") {
  const PlainShell shell;
  CHECK(shell.train("--steps 2 --out r").code == 0);
  const std::string before = shell.read("r/last.safetensors");
  check_failure(shell.train("--steps 4 --out r"), "r: expected a new or empty folder, got one with a run in it");
  CHECK_THAT(shell.train("--out r").err, contains("--resume r"));
  CHECK((shell.read("r/last.safetensors") == before));
  check_failure(shell.train("--out book.txt"), "book.txt: expected a folder, got a file");
  check_failure(shell.train("--out /dev/null/x"), "/dev/null/x: expected a");
  CHECK(shell.read("book.txt") == tiny_text());
}

TEST_CASE("tril train: a configuration comes from a file, a run, and flags on top") {
  const PlainShell shell;
  shell.put("c.json",
            R"({"preset": "baby", "layers": 2, "width": 16, "heads": 2, "context": 8, "batch": 2, "steps": 3})");
  CHECK(shell.run("tril train book.txt --config c.json --steps 2 --no-bias --out r").code == 0);
  const auto info = nlohmann::json::parse(shell.run("tril info r --json").out);
  CHECK(info.at("config").at("layers") == 2);
  CHECK(info.at("config").at("steps") == 2);
  CHECK(info.at("config").at("dropout") == 0.2);
  CHECK(shell.run("tril train book.txt --config r --out again").code == 0);
  CHECK((shell.read("again/config.json") == shell.read("r/config.json")));
  CHECK((shell.read("again/last.safetensors") == shell.read("r/last.safetensors")));
  shell.put("bad.json", R"({"layrs": 2})");
  check_usage_error(shell.run("tril train book.txt --config bad.json"),
                    "bad.json: expected the names of fields, got layrs; did you mean layers?");
  check_failure(shell.run("tril train book.txt --config none.json"), "none.json: expected a file");
}

TEST_CASE("tril train: without a validation part the newest model is kept") {
  const PlainShell shell;
  CHECK(shell.train("--steps 3 --val-fraction 0 --out r").code == 0);
  CHECK(nlohmann::json::parse(shell.run("tril info r --json").out).at("step") == 3);
  check_failure(shell.run("tril eval r"), "a validation part of the text it was trained on, got none");
}

TEST_CASE("tril train: closed streams are not mistaken for its files") {
  const PlainShell shell;
  REQUIRE(shell.train("--steps 2 --out open").code == 0);
  const Outcome closed = shell.train("--steps 2 --out closed >&- 2>&- <&-");
  CHECK(closed.code == 1);  // the last line could not be written
  CHECK((shell.read("closed/last.safetensors") == shell.read("open/last.safetensors")));
  CHECK(shell.run("tril eval closed").code == 0);
  CHECK(shell.train("--steps 2 --out full > /dev/full").code == 1);
  CHECK((shell.read("full/last.safetensors") == shell.read("open/last.safetensors")));
}

TEST_CASE("tril train: numbers do not pass through the locale") {
  const PlainShell shell;
  const std::string locales = shell.run("locale -a").out;
  const size_t at = locales.find("de_DE");
  if (at == std::string::npos) {
    WARN("no locale with a decimal comma here: not checked");
    return;
  }
  const std::string name = locales.substr(at, locales.find('\n', at) - at);
  REQUIRE(shell.train("--steps 2 --out plain").code == 0);
  REQUIRE(shell.run("export LC_ALL=" + name + "; tril train book.txt --steps 2 --out german" + kPlain).code == 0);
  CHECK((shell.read("german/config.json") == shell.read("plain/config.json")));
  CHECK((shell.read("german/last.safetensors") == shell.read("plain/last.safetensors")));
}

}  // namespace tril::test
