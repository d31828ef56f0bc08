// Which texts the program reads, how it measures them, and what it tells others of where they lie.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "train/model/safetensors.h"
#include "train/tiny_shell.h"

namespace tril::test {
namespace {

using Json = nlohmann::json;

// Letters without a line's end.
std::string one_line(size_t size = 300) {
  std::string text = tiny_text(size);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

struct TextShell : TinyShell {
  [[nodiscard]] Outcome train_on(const std::string& texts, const std::string& rest) const {
    return run("tril train " + texts + kDemanding + "--steps 2 " + rest);
  }
  [[nodiscard]] Json eval(const std::string& rest) const {
    const Outcome outcome = run("tril eval --json " + rest);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    return Json::parse(outcome.out);
  }
  [[nodiscard]] Json state(const std::string& model) const {
    return Json::parse(read_safetensors(folder() / model).metadata.at("tril.state"));
  }
  // A model file as versions wrote it that told of paths and split by a product of doubles.
  void make_old(const std::string& model, const std::vector<std::string>& paths) const {
    const Safetensors file = read_safetensors(folder() / model);
    auto metadata = file.metadata;
    Json json = state(model);
    for (const char* younger : {"names", "all_files", "old_split"}) json["text"].erase(younger);
    for (const std::string& path : paths) json["text"]["paths"].push_back(folder() / path);
    metadata["tril.state"] = json.dump();
    std::vector<SafetensorsTensor> tensors;
    for (const SafetensorsEntry& entry : file.entries)
      tensors.push_back({entry.name, entry.dtype, entry.shape, file.data.data() + entry.begin});
    write_safetensors(folder() / model, tensors, metadata);
  }
};

void check_one_line_error(const Outcome& outcome, int code, const std::string& text) {
  CHECK(outcome.code == code);
  CHECK_THAT(outcome.err, contains("error: " + text));
}

}  // namespace

TEST_CASE("tril: no character stands between files that is in none of them, and eval never refuses for one") {
  const TextShell shell;
  shell.put("a.txt", one_line());
  shell.put("b.txt", one_line());
  REQUIRE(shell.train_on("a.txt b.txt", "--out joined").code == 0);
  CHECK(Json::parse(shell.run("tril info joined --json").out).at("characters") == " abcdefgh");
  REQUIRE(shell.train_on("a.txt", "--out single").code == 0);
  for (const char* run : {"single", "joined"}) {
    CHECK(shell.eval(cat(run, " a.txt b.txt")).at("chars") == 599);
    CHECK(shell.run(cat("tril eval ", run, " a.txt b.txt")).code == 0);
  }
  REQUIRE(shell.train_on("book.txt", "--out lines").code == 0);  // which knows the line feed, but no space
  shell.put("c.txt", "abcdefgh");
  shell.put("d.txt", "hgfedcba");
  CHECK(shell.eval("lines c.txt d.txt").at("chars") == 16);
  for (const char* command : {"train", "eval"})
    CHECK_THAT(shell.run(cat("tril ", command, " --help | tr -s '\\n ' ' '")).out,
               contains("Between two files comes a line feed where the first does not end in a new line, or nothing"));
}

TEST_CASE("tril train: a run of before that learned a line feed of the program's own goes on with it") {
  const TextShell shell;
  shell.put("a.txt", one_line());
  shell.put("b.txt", one_line());
  shell.put("whole.txt", one_line() + "\n" + one_line());
  REQUIRE(shell.train_on("whole.txt", "--out old").code == 0);
  std::filesystem::remove(shell.folder() / "old/.text.json");
  for (const char* file : {"old/last.safetensors", "old/model.safetensors"}) shell.make_old(file, {"a.txt", "b.txt"});
  REQUIRE(shell.run("cp -r old again; tril train --resume again whole.txt --steps 5").code == 0);
  CHECK(shell.eval("old").at("chars") == 60);
  CHECK(shell.eval("old a.txt b.txt --validation") == shell.eval("old"));
  REQUIRE(shell.run("tril train --resume old --steps 5").code == 0);
  CHECK((shell.read("old/optimizer-5.safetensors") == shell.read("again/optimizer-5.safetensors")));
}

TEST_CASE("tril eval: bits a character and a byte, whichever the model's tokens are") {
  const TextShell shell;
  std::string text;
  while (text.size() < 900) text += "éa";
  shell.put("e.txt", text);  // 600 characters, 900 bytes
  const double nats = 1 / std::log(2.0);
  REQUIRE(shell.train_on("e.txt", "--out bytes --tokens byte").code == 0);
  const Json bytes = shell.eval("bytes"), whole = shell.eval("bytes e.txt");
  CHECK(bytes.at("bytes") == 89);
  CHECK(bytes.at("chars") == 59);
  const double loss = bytes.at("loss");
  CHECK(bytes.at("bits_per_byte").get<double>() == Approx(loss * nats));
  CHECK(bytes.at("bits_per_char").get<double>() == Approx(loss * nats * 89 / 59));
  CHECK(whole.at("bytes") == 899);
  CHECK(whole.at("chars") == 599);
  CHECK_THAT(shell.run("tril eval bytes").out, contains(" bits a byte, over 89 bytes of the validation part of ") &&
                                                   contains(" bits a character, over 59 characters\n"));
  REQUIRE(shell.train_on("e.txt", "--out chars").code == 0);
  const Json chars = shell.eval("chars");
  CHECK(chars.at("chars") == 59);
  CHECK(chars.at("bytes") == 88);  // the first character, of two bytes, is not predicted
  CHECK(chars.at("bits_per_char").get<double>() == Approx(chars.at("loss").get<double>() * nats));
  CHECK(chars.at("bits_per_byte").get<double>() == Approx(chars.at("loss").get<double>() * nats * 59 / 88));
  // What is no UTF-8 has no characters to count.
  shell.put("raw", std::string("\xFF\xFE") + std::string(100, '\x80'));
  const Json raw = shell.eval("bytes raw");
  CHECK(raw.at("bytes") == 101);
  CHECK_FALSE(raw.contains("chars"));
  CHECK_FALSE(raw.contains("bits_per_char"));
  CHECK(shell.run("tril eval bytes raw").out.find("character") == std::string::npos);
}

TEST_CASE("tril train: what a model of bytes tells of speed and loss is of bytes") {
  const TextShell shell;
  for (const std::string tokens : {"byte", "char"}) {
    REQUIRE(shell.train_on("book.txt", "--out " + tokens + " --tokens " + tokens).code == 0);
    const std::string log = shell.read(tokens + "/log.jsonl"), other = tokens == "byte" ? "char" : "byte";
    CHECK_THAT(log, contains("\"" + tokens + "s_per_s\":") && !contains("\"" + other + "s_per_s\":"));
  }
  CHECK_THAT(shell.run("tril info byte").out, contains(" nats a byte, of the validation part\n"));
  CHECK_THAT(shell.run("tril info char").out, contains(" nats, of the validation part\n"));
}

TEST_CASE("tril train: a fraction of the text is the one that was written, and an old run keeps its own") {
  const TextShell shell;
  shell.put("k.txt", tiny_text(1000));
  CHECK_THAT(shell.train_on("k.txt", "--val-fraction 0.9 --out r").err,
             contains("; 100 to train on, 900 to validate with"));
  CHECK(shell.eval("r").at("chars") == 899);
  for (const char* file : {"r/last.safetensors", "r/model.safetensors"}) shell.make_old(file, {"k.txt"});
  CHECK(shell.eval("r").at("chars") == 900);
  CHECK_THAT(shell.run("tril train --resume r --steps 3").err, contains("; 99 to train on, 901 to validate with"));
  CHECK_THAT(shell.run("tril train --resume r --steps 4").err, contains("; 99 to train on, 901 to validate with"));
  CHECK(shell.state("r/last.safetensors").at("text").at("old_split") == true);
}

TEST_CASE("tril train: of a folder, what is no text is left out with a line that says so") {
  const TextShell shell;
  using namespace std::string_literals;
  shell.put("notes/a.txt", tiny_text());
  shell.put("notes/__pycache__/a.pyc", "\xA7\r\r\n\0\0\0\0"s);
  shell.put("notes/b.png", "\x89PNG\r\n\x1A\n\0\0\0\rIHDR"s);
  const Outcome outcome = shell.train_on("notes", "--out r");
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.err, contains("2 files left out that are no text, such as notes/__pycache__/a.pyc; --all-files") &&
                              contains("notes: 600 characters"));
  const Outcome measured = shell.run("tril eval r notes");
  CHECK(measured.code == 0);
  CHECK_THAT(measured.err, contains("2 files left out that are no text"));
  CHECK(shell.run("tril train --resume r --steps 3").code == 0);
  check_one_line_error(shell.train_on("notes", "--all-files --out s"), 1, "notes/__pycache__/a.pyc: expected UTF-8");
  check_one_line_error(shell.run("tril eval r notes --all-files"), 1, "notes/__pycache__/a.pyc: expected UTF-8");
  check_one_line_error(shell.train_on("notes/b.png", "--out s"), 1, "notes/b.png: expected UTF-8 text");
  CHECK_THAT(shell.train_on("notes", "--all-files --tokens byte --out s").err,
             contains(cat(": ", 600 + 8 + 16 + 2, " bytes;")));
  check_one_line_error(shell.run("tril train --resume r --all-files"), 2, "--all-files: expected not to be given with");
  check_one_line_error(shell.run("tril eval r --all-files"), 2, "--all-files: expected not to be given for the");
}

TEST_CASE("tril train: a file counts once, and a run that counted it more often goes on so") {
  const TextShell shell;
  shell.put("notes/a.txt", tiny_text());
  std::filesystem::create_symlink("a.txt", shell.folder() / "notes/b.txt");
  std::filesystem::create_directory_symlink("..", shell.folder() / "notes/up");
  CHECK_THAT(shell.train_on("notes", "--out once").err,
             contains("notes: 600 characters") && contains("notes: 1 left out, as it is the same file as another"));
  CHECK_THAT(shell.train_on("notes/a.txt notes/b.txt --quiet", "--out named").err,
             contains("warning: notes/b.txt: counted once, as it is the same file as notes/a.txt"));
  const size_t whole = 1200 + (tiny_text().back() == '\n' ? 0 : 1);
  CHECK_THAT(shell.train_on("notes", "--all-files --out twice").err, contains(cat("notes: ", whole, " characters")));
  CHECK(shell.state("twice/last.safetensors").at("text").at("all_files") == true);
  CHECK_THAT(shell.run("tril train --resume twice --steps 3").err, contains(cat("notes: ", whole, " characters")));
  std::filesystem::remove(shell.folder() / "twice/.text.json");
  shell.make_old("twice/last.safetensors", {"notes"});
  CHECK(shell.run("tril train --resume twice --steps 4").code == 0);
  CHECK(shell.run("tril train --resume twice --steps 5").code == 0);
}

TEST_CASE("tril: a model file tells no path, and its run finds the text for all that") {
  const TextShell shell;
  REQUIRE(shell.train_on("book.txt", "--out r").code == 0);
  const std::string place = shell.folder().path();
  for (const char* file :
       {"model.safetensors", "last.safetensors", "optimizer-2.safetensors", "config.json", "log.jsonl"})
    CHECK(shell.read(std::string("r/") + file).find(place) == std::string::npos);
  CHECK(shell.state("r/model.safetensors").at("text").at("names") == Json{"book.txt"});
  const Json measured = shell.eval("r");
  CHECK(shell.eval("r/model.safetensors") == measured);
  CHECK(Json::parse(shell.run("cd r && \"$TRIL\" eval model.safetensors --json").out) == measured);
  CHECK(Json::parse(shell.run("tril info r --json").out).at("trained_on") == Json{shell.folder() / "book.txt"});
  // Away from its run it is known by its name.
  REQUIRE(shell.run("mkdir -p shared && cp r/model.safetensors shared/m").code == 0);
  CHECK(Json::parse(shell.run("tril info shared/m --json").out).at("trained_on") == Json{"book.txt"});
  check_one_line_error(shell.run("tril eval shared/m"), 1,
                       "book.txt: expected the text that the model was trained on, got its name alone; give its place");
  CHECK(shell.eval("shared/m book.txt --validation") == measured);
  REQUIRE(shell.run("tril train" + kDemanding + "--steps 1 --eval-tokens 100 --out stories").code == 0);
  REQUIRE(shell.run("cp stories/model.safetensors shared/stories").code == 0);
  CHECK(shell.eval("shared/stories") == shell.eval("stories"));
}

TEST_CASE("tril: where the note of a text's place is damaged or gone, the text is asked for") {
  const TextShell shell;
  REQUIRE(shell.train_on("book.txt", "--out r").code == 0);
  shell.put("r/.text.json", "{\"paths\":[");
  check_one_line_error(shell.run("tril eval r"), 1, "r/.text.json: expected");
  CHECK(shell.run("tril info r").code == 0);
  CHECK(shell.run("tril sample r --length 3").code == 0);
  CHECK(shell.eval("r book.txt --validation").at("chars") == 59);
  REQUIRE(shell.run("tril train --resume r book.txt --steps 3").code == 0);
  CHECK(shell.eval("r").at("chars") == 59);
  std::filesystem::remove(shell.folder() / "r/.text.json");
  check_one_line_error(shell.run("tril train --resume r --steps 4"), 1,
                       "book.txt: expected the text that the model was trained on, got its name alone; give its place");
  // A run that ended before its first checkpoint leaves that note alone, and can be begun anew.
  shell.put("fresh/.text.json", "{\"paths\":[\"/none\"]}");
  REQUIRE(shell.train_on("book.txt", "--out fresh").code == 0);
  CHECK(shell.eval("fresh").at("chars") == 59);
}

TEST_CASE("tril: a run of before finds its text, and tells no path once it goes on") {
  const TextShell shell;
  REQUIRE(shell.train_on("book.txt", "--out r").code == 0);
  const Json measured = shell.eval("r");
  std::filesystem::remove(shell.folder() / "r/.text.json");
  for (const char* file : {"r/last.safetensors", "r/model.safetensors"}) shell.make_old(file, {"book.txt"});
  CHECK(shell.eval("r") == measured);
  REQUIRE(shell.run("tril train --resume r --steps 4 --lr 0.01").code == 0);
  CHECK(shell.read("r/last.safetensors").find(shell.folder().path()) == std::string::npos);
  CHECK_THAT(shell.read("r/.text.json"), contains(shell.folder() / "book.txt"));
  CHECK(shell.run("tril train --resume r --steps 5").code == 0);
}

}  // namespace tril::test
