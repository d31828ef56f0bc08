// The program from outside: exit codes, messages, what lands in which stream, and that nothing else is touched.
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "train/tiny_shell.h"

namespace tril::test {

namespace {

// The commands that tril alone lists: of two columns, the first.
std::vector<std::string> commands(const Shell& shell) {
  std::vector<std::string> names;
  std::istringstream lines(shell.run("tril").out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  ") && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

}  // namespace

TEST_CASE("tril: alone it shows the commands, with --version its version") {
  const Shell shell;
  for (const char* line : {"tril", "tril --help", "tril help"}) {
    const Outcome outcome = shell.run(line);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    for (const char* command : {"train", "sample", "eval", "gradcheck", "bench", "info"})
      CHECK_THAT(outcome.out, contains(std::string("\n  ") + command + " "));
  }
  const Outcome version = shell.run("tril --version");
  CHECK(version.code == 0);
  CHECK_THAT(version.out, contains("tril 0."));
}

TEST_CASE("tril: every command explains itself and its defaults") {
  const Shell shell;
  REQUIRE(commands(shell).size() >= 6);
  for (const std::string& command : commands(shell)) {
    const Outcome outcome = shell.run("tril " + command + " --help");
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    CHECK_THAT(outcome.out, contains("Usage: tril " + command));
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= 80);
      CHECK_FALSE(line.ends_with(' '));
      CHECK_FALSE(line.ends_with("(default:"));
    }
  }
  const std::string help = shell.run("tril train --help").out;
  for (const Field& field : fields()) CHECK_THAT(help, contains("  --" + std::string(field.name)));
  CHECK_THAT(help, contains("(default: 0.001)"));
}

TEST_CASE("tril: wrong usage is exit code 2 and one line, with the nearest name") {
  const PlainShell shell;
  check_usage_error(shell.run("tril trian"), "tril: expected a command, got trian; did you mean train?");
  check_usage_error(shell.run("tril train --lern 1"), "tril train: expected a flag it has, got --lern");
  check_usage_error(shell.run("tril train --layer=2"), "got --layer=2; did you mean --layers?");
  check_usage_error(shell.run("tril train --weight_decay 1"), "did you mean --weight-decay?");
  check_usage_error(shell.run("tril train -x"), "got -x");
  check_usage_error(shell.run("tril train --x"), "got --x");
  check_usage_error(shell.run("tril train --lr"), "--lr: expected a value, got none");
  check_usage_error(shell.train("--lr 0,001"), "lr: expected a number from 0 to");
  check_usage_error(shell.train("--layers 0"), "layers: expected a whole number from 1 to 4096, got 0");
  check_usage_error(shell.train("--heads 3"), "heads: expected a number that divides the width 8, got 3");
  check_usage_error(shell.train("--kv-heads 3"), "kv-heads: expected a number that divides the 2 heads");
  check_usage_error(shell.train("--window -1"), "window: expected a whole number from 0 to 1048576, got -1");
  check_usage_error(shell.train("--preset smll"), "preset: expected small or baby, got 'smll'; did you mean small?");
  check_usage_error(shell.train("--tokens word"), "tokens: expected");
  check_usage_error(shell.train("--bias=perhaps"), "bias: expected true or false, got 'perhaps'");
  check_usage_error(shell.run("tril eval"), "tril eval: expected a run's folder or a model file, got none");
  check_usage_error(shell.run("tril info a b"),
                    "tril info: expected at most 1 argument besides flags, got 2, with 'b'");
  CHECK(shell.folder().names() == std::set<std::string>{".err", ".out", ".script", "book.txt"});
}

TEST_CASE("tril eval: loss, bits and characters, of the validation part or of another text") {
  const PlainShell shell;
  REQUIRE(shell.train("--steps 4 --out r").code == 0);
  const auto json = nlohmann::json::parse(shell.run("tril eval r --json").out);
  CHECK(json.at("chars") == 59);
  CHECK(json.at("bits_per_char").get<double>() == Approx(json.at("loss").get<double>() / std::log(2.0)));
  std::string logged;
  std::istringstream lines(shell.read("r/log.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (nlohmann::json::parse(line).at("event") == "eval") logged = line;
  CHECK(nlohmann::json::parse(logged).at("loss") == json.at("loss"));

  shell.put("part.txt", tiny_text().substr(540));
  CHECK(nlohmann::json::parse(shell.run("tril eval r/model.safetensors part.txt --json").out) == json);
  CHECK_THAT(shell.run("tril eval r").out,
             contains(" nats, ") && contains(" bits a character, over 59 characters of the "
                                             "validation part of "));
  shell.put("other.txt", "abcxabc");
  check_failure(shell.run("tril eval r other.txt"), "'x' (U+0078) at position 3");
  shell.put("one.txt", "a");
  check_failure(shell.run("tril eval r one.txt"), "a text of at least 2 tokens");
  shell.put("book.txt", tiny_text(599) + "a");
  check_failure(shell.run("tril eval r"),
                "book.txt: expected the text that the model was trained on, got another of the");
  std::filesystem::remove(shell.folder() / "book.txt");
  check_failure(shell.run("tril eval r"),
                "book.txt: expected the text that the model was trained on, got none of that name; give");
  // In its new place it is a text like any other, unless its validation part is asked for.
  shell.put("moved.txt", tiny_text());
  CHECK(nlohmann::json::parse(shell.run("tril eval r moved.txt --validation --json").out) == json);
  const Outcome whole = shell.run("tril eval r moved.txt");
  CHECK_THAT(whole.out, contains("over 599 characters of "));
  CHECK_THAT(whole.err, contains("the text that the model was trained on; --validation measures"));
  check_failure(shell.run("tril eval r part.txt --validation"), "of 600 bytes, got 60 bytes");
}

TEST_CASE("tril info: what is in a model, and what the program is") {
  const PlainShell shell;
  REQUIRE(shell.train("--steps 2 --out r --bias").code == 0);
  const auto model = nlohmann::json::parse(shell.run("tril info r --json").out);
  CHECK(model.at("vocabulary") == 9);
  CHECK(model.at("characters") == "\nabcdefgh");
  CHECK(model.at("step") == 2);
  CHECK(model.at("tensors").at(0).at("name") == "transformer.wte.weight");
  CHECK(model.at("tensors").at(0).at("shape") == nlohmann::json{9, 8});
  int64_t decaying = 0;
  for (const auto& tensor : model.at("tensors")) decaying += tensor.at("decays").get<bool>() ? 1 : 0;
  CHECK(decaying == 6);
  CHECK_THAT(shell.run("tril info r").out,
             contains("transformer.ln_f.bias [8], never decays") && contains(" nats, of the validation part\n"));

  const auto program = nlohmann::json::parse(shell.run("tril info --json").out);
  for (const char* key :
       {"version", "build", "compiler", "cpu", "processors", "threads", "isa", "level", "bf16", "onednn"})
    CHECK(program.contains(key));
  CHECK(program.at("threads") == 1);  // as OMP_NUM_THREADS says
}

TEST_CASE("TRIL_MAX_ISA: lowers the processor's level, beside oneDNN's own variable, and a wrong name is an error") {
  const Shell shell;
  const std::vector<std::string> levels = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  const auto level = [&](const std::string& variables) {
    const Outcome outcome = shell.run(variables + " tril info --json");
    CHECK(outcome.code == 0);
    const std::string name = nlohmann::json::parse(outcome.out).at("level").get<std::string>();
    return std::find(levels.begin(), levels.end(), name) - levels.begin();
  };
  const auto here = level("");
  for (const auto most : {0, 1, 2, 3, 4}) {
    const std::string asked = "TRIL_MAX_ISA=" + levels[static_cast<size_t>(most)];
    CHECK(level(asked) == std::min<ptrdiff_t>(most, here));
    for (const auto& [onednn, its] : {std::pair{"AVX2", 1}, {"avx512_core", 2}, {"SSE41", 0}, {"DEFAULT", 4}})
      CHECK(level(asked + " ONEDNN_MAX_CPU_ISA=" + onednn) == std::min<ptrdiff_t>({most, its, here}));
  }
  CHECK(level("ONEDNN_MAX_CPU_ISA=AVX2") == std::min<ptrdiff_t>(1, here));
  const Outcome wrong = shell.run("TRIL_MAX_ISA=AVX2 tril info");
  CHECK(wrong.code == 1);
  CHECK(wrong.err == "error: TRIL_MAX_ISA: expected baseline, avx2, avx512, avx512_bf16 or amx, got 'AVX2'\n");
  CHECK(wrong.out.empty());
  CHECK(shell.run("TRIL_MAX_ISA=avx tril bench --layers 1 --heads 1 --width 8").code == 1);
}

TEST_CASE("tril bench: any shape is timed, op by op, and stands beside an earlier result") {
  const Shell shell;
  const std::string shape = "--layers 1 --heads 1 --width 8 --context 7 --batch 2 --bias";
  Outcome outcome = shell.run("tril bench --json " + shape + " >before.json");
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  const auto report = nlohmann::json::parse(shell.read("before.json"));
  CHECK(report.at("shape").at("width") == "8");
  const auto& train = report.at("train");
  CHECK(train.at("allocations_per_step") == 0);
  CHECK(train.at("ms_min").get<double>() <= train.at("ms_per_step").get<double>());
  for (const char* figure : {"ms_per_step", "ms_min", "chars_per_s", "gflops", "peak_gflops", "floor_ms"})
    CHECK(train.at(figure).get<double>() > 0);
  CHECK(report.at("decode").at("chars_per_s").get<double>() > 0);
  CHECK(report.at("read_gb_per_s").get<double>() > 0);
  double shares = 0;
  std::string names;
  for (const auto& op : report.at("ops")) {
    shares += op.at("share").get<double>();
    names += op.at("op").get<std::string>() + "\n";
  }
  CHECK(shares == Approx(1).margin(0.02));
  for (const char* name : {"linear (2, 7, 8) (24, 8) (24)\n", "attention (2, 7, 24)\n", "batch\n", "AdamW\n"})
    CHECK_THAT(names, contains(name));

  outcome = shell.run("tril bench --compare before.json " + shape);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out,
             contains("preset small, layers 1, heads 1, width 8, context 7, bias true, batch 2, f32, 1 thread"));
  CHECK_THAT(outcome.out, contains(" ms a step (best ") && contains(", was ") && contains("attention (2, 7, 24)"));
}

TEST_CASE("tril bench: what is no earlier result, or one of something else, is refused") {
  const Shell shell;
  const auto refused = [&](const std::string& file, const std::string& why) {
    shell.put("before.json", file);
    const Outcome outcome = shell.run("tril bench --compare before.json");
    CHECK(outcome.code == 1);
    CHECK(count_lines(outcome.err) == 1);
    CHECK_THAT(outcome.err, contains("before.json: expected " + why));
  };
  for (const char* file : {"", "{", "[]", "null", "{}", R"({"preset":1})"})
    refused(file, "a result of tril bench --json, got something else");
  refused(R"({"preset":"baby"})", "a result for preset small, got preset baby");
  for (const char* threads : {"2", "\"1\"", "1e+300"})
    refused(cat(R"({"preset":"small","dtype":"f32","threads":)", threads, "}"),
            cat("a result for threads 1, got threads ", threads));
  refused("{\"preset\":\"evil\\n\\u001b[31m" + std::string(1000, 'x') + "\"}",
          "a result for preset small, got preset evil\\u000a\\u001b[31mxx");
  CHECK(shell.run("tril bench --compare before.json").err.size() < 200);
  const std::string start = R"({"preset":"small","dtype":"f32","threads":1,"shape":{"layers":"4","heads":"4","width":)";
  refused(start + R"("96"}})", "a result for width 128, got width 96");
  const std::string end =
      R"("128","context":"64","dropout":"0","bias":"false","gelu":"erf","batch":"12","accumulate":"1"},)";
  refused(start + end + R"("train":{"ms_per_step":0},"decode":{"chars_per_s":1}})", "figures above 0");
  const Outcome missing = shell.run("tril bench --compare none.json");
  CHECK(missing.code == 1);
  CHECK_THAT(missing.err, contains("none.json"));
  check_usage_error(shell.run("tril bench --heads 3"), "heads: expected a number that divides the width 128, got 3");
  check_usage_error(shell.run("tril bench --steps 3"), "--steps");
  check_usage_error(shell.run("tril bench --dtype \"$(printf 'a\\nb\\033[1m')\""),
                    "dtype: expected auto, f32 or bf16, got 'a\\u000ab\\u001b[1m'");
  check_usage_error(shell.run("tril gradcheck \"$(printf 'ad\\nd')\""), "expected the name of an op, got ad\\u000ad");
}

TEST_CASE("tril: a model that is missing, truncated or no model is refused in one line") {
  const PlainShell shell;
  REQUIRE(shell.train("--steps 1 --out r").code == 0);
  const std::string good = shell.read("r/model.safetensors");
  for (const std::string command : {"eval", "info", "sample"}) {
    check_failure(shell.run("tril " + command + " none"),
                  "none: expected a run folder or a model file, got none of that name; tril train makes one");
    check_failure(shell.run("tril " + command + " book.txt"), "book.txt: expected");
    check_failure(shell.run("tril " + command + " /dev/zero"), "/dev/zero: expected a regular file");
    for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, good.size() / 2, good.size() - 1}) {
      shell.put("cut", good.substr(0, size));
      check_failure(shell.run("tril " + command + " cut"), "cut: expected");
    }
  }
}

TEST_CASE("tril: output that cannot be written is exit code 1, a reader that left is none") {
  const PlainShell shell;
  REQUIRE(shell.train("--steps 1 --out r").code == 0);
  for (const std::string line : {"tril", "tril info", "tril info r", "tril eval r"}) {
    const Outcome full = shell.run(line + " > /dev/full");
    CHECK(full.code == 1);
    CHECK_THAT(full.err, contains("error: standard output: expected to be written to, got No space left on device"));
    CHECK(shell.run(line + " >&-").code == 1);
    const Outcome gone = shell.run("{ " + line + "; echo code $? >&2; } | true");
    CHECK_THAT(gone.err, contains("code 0"));
  }
}

TEST_CASE("tril: results do not depend on threads that the system does not grant") {
  const PlainShell shell;
  REQUIRE(shell.train("--steps 3 --out r").code == 0);
  const std::string loss = shell.run("tril eval r --json").out;
  for (const char* limit : {"OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0"}) {
    INFO(limit);
    CHECK(shell.run(std::string("export OMP_NUM_THREADS=2 ") + limit + "; tril eval r --threads 2 --json").out == loss);
    CHECK(shell.run(std::string("export OMP_NUM_THREADS=2 ") + limit + "; tril gradcheck matmul").code == 0);
  }
}

TEST_CASE("tril: more threads than the system has memory for are fewer threads and a warning") {
#ifdef TRIL_SANITIZE
  WARN("AddressSanitizer needs more memory than this test leaves: not checked");
#else
  const PlainShell shell;
  const Outcome scarce = shell.run("ulimit -v 2000000; tril train book.txt --out s --threads 1000 --steps 2" + kPlain);
  CHECK(scarce.code == 0);
  CHECK_THAT(scarce.err, contains("threads: 1000 asked for, but the system grants "));
#endif
}

TEST_CASE("tril: where the system refuses memory, one line says so, at any limit") {
#ifdef TRIL_SANITIZE
  WARN("AddressSanitizer needs more memory than this test leaves: not checked");
#else
  const PlainShell shell;
  REQUIRE(shell.train("--steps 1 --out r --quiet").code == 0);
  // From where the program starts at all to where it has enough. With two threads, which need stacks too.
  for (int limit = 52'000; limit <= 240'000; limit += 9'000)
    for (const char* command : {"eval r --threads 2", "train book.txt --out s --threads 2 --steps 1 --quiet"}) {
      const Outcome outcome = shell.run("export OMP_NUM_THREADS=2; ulimit -v " + std::to_string(limit) + "; tril " +
                                        command + "; code=$?; rm -rf s; exit $code");
      INFO(command << ", ulimit -v " << limit << ": " << outcome.err);
      CHECK((outcome.code == 0 || outcome.code == 1 || outcome.code == 127));  // 127: not even its libraries fit
      if (outcome.code == 1) CHECK(count_lines(outcome.err) == 1);
    }
#endif
}

TEST_CASE("tril: help on a command, and what is written beside flags") {
  const PlainShell shell;
  CHECK(shell.run("tril help train").out == shell.run("tril train --help").out);
  check_usage_error(shell.train("--bias --no-bias"), "bias: expected --bias or --no-bias, got both");
  check_usage_error(shell.train("--bias false"),
                    "--bias: expected no value, as it is a switch, got false; write --bias=false");
  CHECK_THAT(shell.train("--no-bias=false --steps 1 --out biased").out, contains("biased"));
  CHECK_THAT(shell.run("tril info biased").out, contains("bias            true"));
  check_usage_error(shell.train("--no-bias=garbage"), "--no-bias: expected true or false, got 'garbage'");
  check_usage_error(shell.train("--out="), "--out: expected a run's folder, got an empty name");
  check_usage_error(shell.run("tril info --help=maybe"), "--help: expected true or false, got 'maybe'");
  check_usage_error(shell.run("tril sample r --prompt --length 20"),
                    "--prompt: expected a value, got the flag --length; write --prompt=--length if that is the value");
  check_usage_error(shell.run("tril sample r --prompt"), "--prompt: expected a value, got none");
  check_usage_error(shell.run("tril gradcheck foo"), "tril gradcheck --help lists them");
  CHECK_THAT(shell.run("tril gradcheck --help").out, contains("add_layer_norm,"));
  CHECK_THAT(shell.run("tril gradcheck add").out, contains("Every gradient is right."));
  CHECK_THAT(shell.run("tril gradcheck add --sample 1").out, contains("What was checked is right."));
  check_usage_error(shell.run("tril sample run Once"), "a prompt is given by --prompt TEXT");
}

TEST_CASE("program: threads that wait give their processor away, unless the environment says how long to spin") {
  const Shell shell;
  // The program waits for its text meanwhile.
  const auto spins_with = [&](const std::string& environment) {
    return shell
        .run("rm -f text; mkfifo text\nenv -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT " + environment +
             " \"$TRIL\" train - <text >/dev/null 2>&1 &\nexec 3>text\n"
             "for i in 1 2 3 4 5 6 7 8 9 10; do\n  tr '\\0' '\\n' </proc/$!/environ | grep ^GOMP_SPINCOUNT && break\n"
             "  sleep 0.1\ndone\nkill $!")
        .out;
  };
  const std::string own = spins_with(""), name = "GOMP_SPINCOUNT=";
  REQUIRE(own.starts_with(name));
  const int spins = std::stoi(own.substr(name.size()));  // a look takes from less than one to 100 ns
  CHECK((spins >= 500 && spins <= 1000000));
  CHECK(spins_with("OMP_WAIT_POLICY=active").empty());
  CHECK(spins_with("GOMP_SPINCOUNT=7") == "GOMP_SPINCOUNT=7\n");
}

}  // namespace tril::test
