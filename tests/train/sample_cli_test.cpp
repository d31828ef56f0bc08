// `tril sample` from outside: what comes out, prompts from everywhere, and what is refused.
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "train/base/utf8.h"
#include "train/model/model_file.h"
#include "train/program.h"

namespace tril::test {
namespace {

// A model as it starts, of the characters given, with a context of 8.
struct ModelShell : Shell {
  explicit ModelShell(const std::string& characters = "abcdefgh\n", TokenKind kind = TokenKind::kChar,
                      bool broken = false, int64_t steps = 1) {
    TrainConfig config;
    config.tokens = kind;
    config.layers = 1;
    config.heads = 2;
    config.width = 16;
    config.context = 8;
    Model model = make_model(config, Tokenizer::make(kind, characters, "text"));
    model.state.step = steps;
    if (broken)
      model.params->find("transformer.h.0.mlp.c_fc.weight")->value.ptr<float>()[5] =
          std::numeric_limits<float>::quiet_NaN();
    save_model(folder() / "model.safetensors", model);
  }
  [[nodiscard]] Outcome sample(const std::string& flags) const { return run("tril sample model.safetensors " + flags); }
  [[nodiscard]] std::string text(const std::string& flags) const {
    const Outcome outcome = sample(flags);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    return outcome.out;
  }
};

void check_refused(const Outcome& outcome, int code, const std::string& message) {
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(count_lines(outcome.err) == 1);
  CHECK_THAT(outcome.err, contains("error: ") && contains(message));
}

}  // namespace

TEST_CASE("tril sample: the prompt and as many characters as asked come out, then a new line") {
  const ModelShell shell;
  const std::string out = shell.text("--prompt abc --length 50");
  CHECK(out.size() == 3 + 50 + 1);
  CHECK(out.substr(0, 3) == "abc");
  CHECK(out.back() == '\n');
  CHECK(shell.text("--prompt abc --length 50 --no-prompt") == out.substr(3));
  CHECK(shell.text("--prompt abc --length 0") == "abc\n");
  CHECK(shell.text("--no-prompt --length 7").size() == 8);
  CHECK(shell.run("tril sample . --prompt abc --length 50").out == out);  // a run's folder
}

TEST_CASE("tril sample: a text is a function of its seed, and of no number of threads") {
  const ModelShell shell;
  const std::string out = shell.text("--length 200 --seed 5");
  CHECK(shell.text("--length 200 --seed 5") == out);
  CHECK(shell.text("--length 200 --seed 5 --threads 2") == out);
  const std::string narrow = shell.text("--length 200 --seed 5 --dtype bf16");
  CHECK(narrow.size() == out.size());
  CHECK(shell.text("--length 200 --seed 5 --dtype bf16 --threads 2") == narrow);
  const std::string automatic = shell.text("--length 200 --seed 5 --dtype auto");
  CHECK((automatic == out || automatic == narrow));
  check_refused(shell.run("tril sample model.safetensors --dtype f16"), 2,
                "--dtype: expected f32, bf16 or auto, got 'f16'");
  CHECK(shell.text("--length 200 --seed 6") != out);
  const std::string greedy = shell.text("--length 100 --temperature 0");
  CHECK(shell.text("--length 100 --temperature 0 --seed 9") == greedy);
  CHECK(shell.text("--length 100 --temperature 1e-9 --seed 9") == greedy);
}

TEST_CASE("tril sample: top-k and top-p that leave all tokens change nothing") {
  const ModelShell shell("abcd");
  const std::string out = shell.text("--length 200");
  for (const char* flags : {"--top-k 0", "--top-k 4", "--top-k 5", "--top-k 1000000000", "--top-p 1"})
    CHECK(shell.text(std::string("--length 200 ") + flags) == out);
  const std::string greedy = shell.text("--length 100 --temperature 0");
  CHECK(shell.text("--length 100 --top-k 1") == greedy);
  CHECK(shell.text("--length 100 --top-p 0.0001") == greedy);
}

TEST_CASE("tril sample: each of several samples is the one of its number, alone or not") {
  const ModelShell shell("abcdefgh");
  const std::string separator = "\n----\n";
  const std::string two = shell.text("--prompt ab --length 30 --count 2"),
                    three = shell.text("--prompt ab --length 30 --count 3");
  CHECK(shell.text("--prompt ab --length 30") == three.substr(0, 33));
  CHECK(three.substr(0, 33 + 5 + 32) == two.substr(0, 33 + 5 + 32));
  CHECK(three.substr(32, separator.size()) == separator);
  CHECK(three.size() == 3 * 33 + 2 * 5);
  CHECK(three.substr(0, 32) != three.substr(38, 32));
  CHECK(three.substr(38, 2) == "ab");
  CHECK(shell.text("--prompt ab --length 30 --count 3 --dtype bf16").substr(0, 33) ==
        shell.text("--prompt ab --length 30 --dtype bf16"));
}

TEST_CASE("tril sample: many samples, more than are made together, come out in their order") {
  const ModelShell shell("abcdefgh");
  std::string expected;
  for (const int count : {1, 2, 66, 130}) {
    const std::string all = shell.text("--prompt ab --length 20 --stop cb --count " + std::to_string(count));
    CHECK(all.substr(0, expected.size()) == expected);
    CHECK(all.size() > expected.size());
    expected = all;
  }
  // Each as JSON is the text between two lines of dashes.
  std::istringstream lines(shell.text("--prompt ab --length 20 --stop cb --count 130 --json"));
  std::string joined;
  for (std::string line; std::getline(lines, line);) {
    const auto sample = nlohmann::json::parse(line);
    joined += (joined.empty() ? "" : "----\n") + sample.at("prompt").get<std::string>() +
              sample.at("text").get<std::string>() + "\n";
  }
  CHECK(joined == expected);
}

TEST_CASE("tril sample: the text ends before the stop text") {
  const ModelShell shell("abc");
  const std::string whole = shell.text("--prompt ab --length 300");
  const size_t at = whole.find("ca", 2);
  REQUIRE(at != std::string::npos);
  CHECK(shell.text("--prompt ab --length 300 --stop ca") == whole.substr(0, at) + "\n");
  const std::string never = "aaabbbcccaaabbbccc";
  REQUIRE(whole.find(never) == std::string::npos);
  CHECK(shell.text("--prompt ab --length 300 --stop " + never) == whole);
  check_refused(shell.sample("--stop abz"), 1, "--stop: expected only the 3 characters that the model was trained on");
}

TEST_CASE("tril sample: a prompt comes from a flag, a file, a pipe or a redirection, byte for byte") {
  const ModelShell shell("ab \n\xC3\xA9\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7");
  const std::string prompt = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 ab\xC3\xA9\n";
  shell.put("prompt", prompt);
  shell.put("marked", "\xEF\xBB\xBF" + prompt);
  const std::string expected = shell.text("--length 20 --prompt-file prompt");
  CHECK(expected.substr(0, prompt.size()) == prompt);
  CHECK(is_utf8(expected));
  CHECK(shell.text("--length 20 --prompt-file marked") == expected);
  CHECK(shell.text("--length 20 --prompt-file - < prompt") == expected);
  CHECK(shell.text("--length 20 --prompt - < prompt") == expected);
  CHECK(shell.text("--length 20 < prompt") == expected);
  CHECK(shell.run("cat prompt | tril sample model.safetensors --length 20").out == expected);
  CHECK(shell.run("LC_ALL=C tril sample model.safetensors --length 20 < prompt").out == expected);
  CHECK(shell.text("--length 20 --prompt '' < prompt") == shell.text("--length 20"));
}

TEST_CASE("tril sample: a value behind = is any text, of any length") {
  const ModelShell shell;
  CHECK(shell.text("--prompt='a\nb' --length 0") == "a\nb\n");
  CHECK(shell.text("--prompt=$(head -c 100000 /dev/zero | tr '\\0' a) --length 0 2>/dev/null").size() == 100'001);
  check_refused(shell.sample("--prompt==a"), 1, "'=' (U+003D) at position 0");
  CHECK(shell.text("--prompt=abc --length=0 --no-prompt=false") == "abc\n");
  const std::string whole = shell.text("--prompt=abc --length=200");
  CHECK(shell.text("--prompt=abc --length=200 --stop='\n'") == whole.substr(0, whole.find('\n')) + "\n");
  for (const char* start : {"--", "-", "--x="}) {
    const Outcome unknown = shell.sample(std::string(start) + "$(head -c 100000 /dev/zero | tr '\\0' z)");
    CHECK(unknown.code == 2);
    CHECK(count_lines(unknown.err) == 1);
    CHECK(unknown.err.size() < 300);
  }
}

TEST_CASE("tril sample: without a prompt a silent pipe is not waited for") {
  const ModelShell shell;
  const Outcome outcome = shell.run("mkfifo pipe; tril sample model.safetensors --length 20 <>pipe");
  CHECK(outcome.code == 0);
  CHECK(outcome.out == shell.text("--length 20"));
  CHECK_THAT(outcome.err, contains("--prompt - waits for it"));
}

TEST_CASE("tril sample: a vocabulary without a new line has a beginning too") {
  const ModelShell shell("ab");
  CHECK(shell.text("--length 20").size() == 21);
}

TEST_CASE("tril sample: names a prompt's characters that the model does not know") {
  const ModelShell shell("ab");
  check_refused(shell.sample("--prompt abd"), 1, "'d' (U+0064) at position 2");
  check_refused(shell.sample("--prompt 'e\xCC\x81'"), 1, "(U+0301) at position 1");
  const Outcome many = shell.sample("--prompt qwertyuiop");
  check_refused(many, 1, "and 5 other");
  shell.put("latin1", "ab\xE9");
  check_refused(shell.sample("--prompt-file latin1"), 1, "byte 0xe9 at offset 2");
}

TEST_CASE("tril sample: of a prompt longer than the context it says how much is seen") {
  const ModelShell shell;
  for (const int64_t length : {7, 8, 9, 1000}) {
    INFO(length);
    const std::string prompt(static_cast<size_t>(length), 'a');
    const Outcome outcome = shell.sample("--length 30 --prompt " + prompt);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.size() == prompt.size() + 31);
    CHECK(outcome.out.substr(0, prompt.size()) == prompt);
    if (length <= 8) {
      CHECK(outcome.err.empty());
    } else {
      CHECK_THAT(outcome.err, contains(std::to_string(length)) && contains(" 8"));
    }
  }
}

TEST_CASE("tril sample: a model of bytes prints UTF-8 whatever it makes of it") {
  const ModelShell shell("", TokenKind::kByte);
  const std::string text = shell.text("--length 10000 --prompt '\xF0\x9F\x91\xA9'");
  CHECK(text.substr(0, 4) == "\xF0\x9F\x91\xA9");
  CHECK(is_utf8(text));
}

TEST_CASE("tril sample: of a model that was never trained it says so, and goes on") {
  const ModelShell shell("abc", TokenKind::kChar, false, 0);
  const Outcome outcome = shell.sample("--length 5");
  CHECK(outcome.code == 0);
  CHECK(outcome.out.size() == 6);
  CHECK_THAT(outcome.err, contains("the model has not been trained yet (step 0)"));
}

TEST_CASE("tril sample: weights that are not finite end in an error that says so") {
  const ModelShell shell("ab", TokenKind::kChar, true);
  const Outcome outcome = shell.sample("--length 20");
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.err, contains("error: ") && contains("non-finite logits at position 0"));
}

TEST_CASE("tril sample: flags that make no sense are wrong usage") {
  const ModelShell shell;
  check_refused(shell.sample("--top-k -3"), 2, "--top-k");
  check_refused(shell.sample("--top-k 2.5"), 2, "--top-k");
  check_refused(shell.sample("--top-p 0"), 2, "--top-p: expected more than 0");
  check_refused(shell.sample("--top-p 1.5"), 2, "--top-p");
  check_refused(shell.sample("--top-p 0,5"), 2, "--top-p");
  check_refused(shell.sample("--temperature -1"), 2, "--temperature");
  check_refused(shell.sample("--temperature nan"), 2, "--temperature");
  check_refused(shell.sample("--length -1"), 2, "--length");
  check_refused(shell.sample("--length 1.5e0"), 2, "--length: expected a whole number from 0 to ");
  check_refused(shell.sample("--count 0"), 2, "--count");
  check_refused(shell.sample("--seed x"), 2, "--seed");
  check_refused(shell.sample("--temprature 1"), 2, "did you mean --temperature?");
  check_refused(shell.sample("--prompt a --prompt-file b"), 2, "one of --prompt and --prompt-file");
  check_refused(shell.run("tril sample"), 2, "a run's folder or a model file");
  check_refused(shell.run("tril sample model.safetensors more"), 2, "'more'");
}

TEST_CASE("tril sample: whole numbers are taken however they are written") {
  const ModelShell shell;
  const std::string expected = shell.text("--length 1000 --seed 20 --count 2 --top-k 3");
  CHECK(shell.text("--length 1e3 --seed 2E+1 --count 2.0 --top-k 30e-1") == expected);
}

TEST_CASE("tril sample: a model or a prompt that is not there is named") {
  const ModelShell shell;
  check_refused(shell.run("tril sample nowhere"), 1, "nowhere");
  check_refused(shell.sample("--prompt-file nowhere.txt"), 1, "nowhere.txt");
  check_refused(shell.sample("--prompt-file ."), 1, ".");
}

TEST_CASE("tril sample: as JSON each sample is a line with prompt and text") {
  const ModelShell shell;
  const std::string out = shell.text("--prompt ab --length 20 --count 2 --json");
  CHECK(count_lines(out) == 2);
  const auto first = nlohmann::json::parse(out.substr(0, out.find('\n')));
  CHECK(first.at("prompt") == "ab");
  CHECK("ab" + first.at("text").get<std::string>() + "\n" == shell.text("--prompt ab --length 20"));
}

TEST_CASE("tril sample: output that cannot be written is a failure, a reader that has enough is none") {
  const ModelShell shell;
  const Outcome full = shell.run("tril sample model.safetensors --length 20 >/dev/full");
  CHECK(full.code == 1);
  CHECK_THAT(full.err, contains("standard output"));
  CHECK(shell.run("tril sample model.safetensors --length 20 >&-").code == 1);
  const Outcome enough =
      shell.run("{ tril sample model.safetensors --prompt abcd --length 1000000000; echo $? >code; } | head -c 4");
  CHECK(enough.out == "abcd");
  CHECK(enough.err.empty());
  CHECK(shell.read("code") == "0\n");
}

TEST_CASE("tril sample: a signal ends it soon, what was written stays") {
  const ModelShell shell;
  for (const auto& [signal, code] : {std::pair{"INT", 130}, std::pair{"TERM", 143}}) {
    // Shells let processes in the background ignore SIGINT; env restores the default.
    const Outcome stopped = shell.run(
        "rm -f text; env --default-signal=INT \"$TRIL\" sample model.safetensors --prompt abc --length 1000000000 "
        ">text & pid=$!\n"
        "until [ -s text ]; do sleep 0.01; done\n" +
        std::string("kill -") + signal + " $pid; wait $pid");
    CHECK(stopped.code == code);
    CHECK(stopped.err == "");
    const std::string text = shell.read("text");
    CHECK(text.substr(0, 3) == "abc");
    CHECK(text.back() == '\n');
  }
}

TEST_CASE("tril sample: a signal among many samples leaves those that were begun out, but for the one at hand") {
  const ModelShell shell;
  const Outcome stopped = shell.run(
      "env --default-signal=INT \"$TRIL\" sample model.safetensors --prompt abc --count 20 --length 500000 "
      ">text & pid=$!\nuntil [ -s text ]; do sleep 0.01; done\nkill -INT $pid; wait $pid");
  CHECK(stopped.code == 130);
  const std::string text = shell.read("text");
  CHECK(text.substr(0, 3) == "abc");
  CHECK(text.back() == '\n');
  CHECK(text.find("----") == std::string::npos);
}

}  // namespace tril::test
