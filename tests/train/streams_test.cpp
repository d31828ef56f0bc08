// Standard streams that do not block, are slow or are a terminal: nothing is lost, nothing steers, signals still work.
#include "train/base/streams.h"

#include <nlohmann/json.hpp>

#include "train/base/utf8.h"
#include "train/model/model_file.h"
#include "train/process.h"
#include "train/program.h"
#include "train/tiny_model.h"

namespace tril::test {
namespace {

// Escape, a C1 control, DEL, a lone carriage return, marks and overrides of direction; and what may pass: a tab, both
// line ends, a joiner inside an emoji.
const std::string kHostile =
    "a\x1b[31mb\xC2\x9B\x7F\bc\rd\r\n\xE2\x80\xAE\xE2\x81\xA6\xE2\x80\x8E\xE2\x80\x8F\xD8\x9C\xE2\x81\xA9\xE2\x80\xAA"
    "\te\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7\n";
const std::string kShown =
    "a\\u001b[31mb\\u009b\\u007f\\u0008c\\u000dd\r\n\\u202e\\u2066\\u200e\\u200f\\u061c\\u2069\\u202a"
    "\te\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7\n";

// A text, a model of it, and the model's run.
struct StreamShell : Shell {
  explicit StreamShell(const std::string& characters = "abcdefgh\n", std::vector<std::string> trained_on = {}) {
    TrainConfig config = tiny_config();
    Model made = make_model(config, Tokenizer::make(TokenKind::kChar, characters, "text"));
    made.state.step = 1;
    made.state.text.names = std::move(trained_on);
    save_model(model, made);
    put("book.txt", tiny_text());
  }
  std::string model = folder() / "model.safetensors", book = folder() / "book.txt";
};

const std::vector<std::string> kTiny = {"--layers",  "1", "--heads", "2", "--width",  "8",
                                        "--context", "8", "--batch", "4", "--warmup", "2"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Feeds a descriptor that may not block, in pieces with pauses between them.
void feed(Descriptor to, std::string_view text) {
  constexpr size_t kPiece = 100;
  while (!text.empty()) {
    wait_ms(20);
    const ssize_t done = ::write(to.get(), text.data(), std::min(kPiece, text.size()));
    if (done < 0 && errno == EAGAIN) continue;
    REQUIRE(done > 0);
    text.remove_prefix(static_cast<size_t>(done));
  }
}

// What comes out of the program's standard output, a terminal.
std::string on_terminal(const std::vector<std::string>& arguments) {
  Pipe terminal = make_terminal();
  Process program(arguments, {.out = std::move(terminal.write)});
  std::string all = read_all(terminal.read);
  CHECK(program.wait_briefly() == 0);
  return all;
}

}  // namespace

TEST_CASE("streams: all is written to a descriptor that does not block, in order") {
  Pipe pipe = make_pipe(Blocks::no);
  std::string text, got;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i) + "\n";
  std::thread reader([&] {
    wait_ms(200);
    got = read_all(pipe.read);
  });
  CHECK(write_all(pipe.write.get(), text) == 0);
  pipe.write = Descriptor();
  reader.join();
  CHECK((got == text));
  pipe = make_pipe(Blocks::no);
  pipe.read = Descriptor();
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  CHECK(write_all(pipe.write.get(), "x") == EPIPE);
  (void)::signal(SIGPIPE, before);
  constexpr int kNone = 1'000'000;
  CHECK(write_all(kNone, "x") == EBADF);
}

TEST_CASE("streams: standard output that does not block is waited for") {
  const StreamShell shell;
  const std::vector<std::string> sample = {"sample", shell.model, "--prompt", "abc", "--length", "30000"};
  for (const auto& arguments :
       {sample, sample + std::vector<std::string>{"--json"}, sample + std::vector<std::string>{"--count", "3"},
        std::vector<std::string>{"train", "--help"}, std::vector<std::string>{"info", shell.model, "--json"}}) {
    std::string line = "tril", got;
    for (const std::string& argument : arguments) line += " " + argument;
    INFO(line);
    Pipe pipe = make_pipe(Blocks::no);
    Process program(arguments, {.out = std::move(pipe.write)});
    wait_ms(300);  // until the pipe is full
    got = read_all(pipe.read);
    CHECK(program.wait_briefly() == 0);
    CHECK((got == shell.run(line).out));
    CHECK(got.size() > 1000);
  }
}

TEST_CASE("streams: standard input that does not block is waited for, as a text and as a prompt") {
  const StreamShell shell;
  const auto with_input = [&](const std::vector<std::string>& arguments, const std::string& text) {
    Pipe in = make_pipe(Blocks::no), out = make_pipe(Blocks::yes);
    Process program(arguments, {.in = std::move(in.read), .out = std::move(out.write)});
    feed(std::move(in.write), text);
    std::string all = read_all(out.read);
    CHECK(program.wait_briefly() == 0);
    return all;
  };
  const std::string text = tiny_text(), run = shell.folder() / "r";
  CHECK_THAT(with_input(std::vector<std::string>{"train", "-", "--steps", "2", "--out", run} + kTiny, text),
             contains("model: "));
  CHECK(nlohmann::json::parse(shell.run("tril info r --json").out).at("step") == 2);
  CHECK(with_input({"eval", run, "-", "--json"}, text) == shell.run("tril eval r book.txt --json").out);
  const std::string prompt = tiny_text(500), expected = shell.run("tril sample r --prompt-file - <book.txt").out;
  const std::vector<std::string> sample = {"sample", run};
  for (const auto& flags : {std::vector<std::string>{}, {"--prompt", "-"}, {"--prompt-file", "-"}})
    CHECK((with_input(sample + flags, text) == expected));
}

TEST_CASE("streams: of what goes to standard error no line is lost where it does not block") {
  const StreamShell shell;
  Pipe pipe = make_pipe(Blocks::no);
  const std::string run = shell.folder() / "r";
  Process program(
      std::vector<std::string>{"train", shell.book, "--out", run, "--steps", "60", "--eval-every", "1"} + kTiny,
      {.err = std::move(pipe.write)});
  wait_ms(500);  // until the pipe is full
  const std::string all = read_all(pipe.read);
  CHECK(program.wait_briefly() == 0);
  for (int step = 1; step <= 60; ++step) {
    INFO(step);
    CHECK_THAT(all, contains("\nstep " + std::to_string(step) + "/60  loss "));
  }
}

TEST_CASE("streams: a signal stops the program while it waits for a reader or a writer") {
  const StreamShell shell;
  const std::string run = shell.folder() / "r";
  for (const Blocks blocks : {Blocks::yes, Blocks::no}) {
    Pipe out = make_pipe(blocks);
    Process sample({"sample", shell.model, "--length", "1000000000"}, {.out = std::move(out.write)});
    wait_ms(1000);
    sample.send(SIGINT);
    CHECK(sample.wait_briefly() == 128 + SIGINT);

    Pipe in = make_pipe(blocks);
    Process waits(std::vector<std::string>{"train", "-", "--out", run} + kTiny, {.in = std::move(in.read)});
    wait_ms(500);
    waits.send(SIGTERM);
    CHECK(waits.wait_briefly() == 128 + SIGTERM);

    // Nobody reads what training says: it stands still, but a signal still makes it save.
    Pipe err = make_pipe(blocks);
    const std::string silent = shell.folder() / (blocks == Blocks::yes ? "a" : "b");
    Process train(
        std::vector<std::string>{"train", shell.book, "--out", silent, "--steps", "1000000", "--eval-every", "1"} +
            kTiny,
        {.err = std::move(err.write)});
    wait_ms(2000);
    train.send(SIGINT);
    CHECK(train.wait_briefly() == 128 + SIGINT);
    CHECK(load_model(silent + "/last.safetensors").state.step > 0);
  }
}

TEST_CASE("streams: a program that was stopped and goes on finds its streams as they were") {
  const StreamShell shell;
  Pipe out = make_pipe(Blocks::no), in = make_pipe(Blocks::no);
  Process program({"sample", shell.model, "--prompt", "-", "--length", "10000"},
                  {.in = std::move(in.read), .out = std::move(out.write)});
  const auto pause = [&] {
    for (const int signal : {SIGSTOP, SIGCONT}) {
      wait_ms(200);
      program.send(signal);
    }
  };
  pause();
  feed(std::move(in.write), "abc");
  pause();
  CHECK((read_all(out.read) == shell.run("tril sample model.safetensors --prompt abc --length 10000").out));
  CHECK(program.wait_briefly() == 0);
}

TEST_CASE("streams: a terminal gets nothing from a text that steers it, a file gets the text as it is") {
  if (lacks_terminals()) return;
  CHECK(without_controls(kHostile) == kShown);
  const StreamShell shell(kHostile + "xyz");
  shell.put("prompt", kHostile);
  const std::vector<std::string> echo = {"sample",   shell.model, "--prompt-file", shell.folder() / "prompt",
                                         "--length", "0"};
  CHECK(on_terminal(echo) == kShown + "\n");
  CHECK(shell.run("tril sample model.safetensors --prompt-file prompt --length 0").out == kHostile + "\n");
  // Character by character, where a carriage return and its line feed come one after the other.
  const StreamShell lines("\r\n\x1b");
  const std::string exact = lines.run("tril sample model.safetensors --length 300").out;
  REQUIRE_THAT(exact, contains("\r\n") && contains("\r\r") && contains("\x1b"));
  CHECK(on_terminal({"sample", lines.model, "--length", "300"}) == without_controls(exact));
}

TEST_CASE("streams: what a model's file tells of itself cannot steer a terminal, and stays JSON") {
  if (lacks_terminals()) return;
  const StreamShell shell(kHostile, {"/tmp/" + kHostile});
  const std::vector<std::string> info = {"info", shell.model};
  for (const std::string& shown : {on_terminal(info), on_terminal(info + std::vector<std::string>{"--json"})}) {
    CHECK(without_controls(shown) == shown);
    CHECK_THAT(shown, contains("\\u202e") && contains("\\u009b") && contains("\\u001b"));
  }
  const auto json = nlohmann::json::parse(on_terminal(info + std::vector<std::string>{"--json"}));
  CHECK(json == nlohmann::json::parse(shell.run("tril info " + shell.model + " --json").out));
  const auto sampled = nlohmann::json::parse(
      on_terminal({"sample", shell.model, "--prompt", "a\xE2\x80\xAE\xC2\x9B", "--length", "0", "--json"}));
  CHECK(sampled.at("prompt") == "a\xE2\x80\xAE\xC2\x9B");
}

TEST_CASE("streams: an error on a terminal is one line, whatever the names in it") {
  if (lacks_terminals()) return;
  const StreamShell shell;
  const std::string name = shell.folder() / "n\x1b[2J\xE2\x80\xAE\r\nx";
  for (const auto& arguments : {std::vector<std::string>{"sample", name},
                                {"train", name},
                                {"eval", shell.model, name},
                                {"info", name},
                                {"train", "--config", name},
                                {"train", "--resume", name},
                                {"train", "--resume", shell.model, "--preset", name},
                                {"sample", shell.model, "--prompt", "--length=" + name},
                                {"sample", shell.model, "--prompt", name},
                                {"sample", shell.model, "--stop", name},
                                {"sample", shell.model, "--prompt-file", name},
                                {"train", "--preset", name},
                                {"train", "--" + name},
                                {name},
                                {"bench", "--compare", name}}) {
    Pipe terminal = make_terminal();
    Process program(arguments, {.err = std::move(terminal.write)});
    const std::string said = read_all(terminal.read);
    INFO(said);
    CHECK(program.wait_briefly() != 0);
    CHECK(count_lines(said) == 1);
    CHECK(without_controls(said) == said);
  }
}

}  // namespace tril::test
