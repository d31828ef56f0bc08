// Every kind of wrong file, given to every command that takes a run, a model, a text or a configuration.
#include "train/base/file_kind.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "train/model/model_file.h"
#include "train/program.h"
#include "train/safetensors_files.h"
#include "train/tiny_shell.h"

namespace tril::test {
namespace {

using namespace std::string_literals;

// A ZIP's first entry, as each of them begins.
std::string zip(const std::string& name) {
  return "PK\3\4\0\0\0\x08\0\0\0\0\0\0\xCC\xDD\xEE\xFF\0\0\0\0\0\0\0\0"s + static_cast<char>(name.size()) + "\0\0\0"s +
         name + std::string(100, '\xF0');
}

struct Wrong {
  std::string name, contents, what;
};
const std::vector<Wrong> kWrong = {
    {"empty", "", "an empty file"},
    {"poem.txt", "Shall I compare thee to a summer's day?\n", "a text"},
    {"short.txt", "ode", "a text"},
    {"data.json", "{\"a\": [1, 2, 3]}\n", "a text"},
    {"utf16.txt", "\xFF\xFEo\0d\0e\0"s, "a text in UTF-16"},
    {"picture.png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xFF\xFF"s, "a PNG image"},
    {"photo.jpg", "\xFF\xD8\xFF\xE0\0\x10JFIF"s, "a JPEG image"},
    {"paper.pdf", "%PDF-1.7\n%\xE2\xE3\xCF\xD3\n"s, "a PDF document"},
    {"model.pt", zip("archive/data.pkl"), "a PyTorch file"},
    {"old.pth", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s, "a PyTorch file"},
    {"state.pkl", "\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94\xFF"s, "a Python pickle"},
    {"archive.zip", zip("readme.md"), "a ZIP archive"},
    {"arrays.npz", zip("w.npy"), "a file of NumPy arrays"},
    {"array.npy", "\x93NUMPY\x01\0v\0{'descr': '<f4'}"s, "a NumPy array"},
    {"llama.gguf", "GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\xFF"s, "a GGUF model"},
    {"weights.h5", "\x89HDF\r\n\x1a\n\0\0\0"s, "an HDF5 file"},
    {"text.gz", "\x1f\x8b\x08\0\0\0\0\0"s, "a gzip file"},
    {"program",
     "\x7f"
     "ELF\x02\x01\x01\0\xFF"s,
     "a program"},
    {"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a Git LFS pointer"},
    {"page.html", "<!DOCTYPE html>\n<html><title>404</title>\n", "a web page"},
    {"noise", "\x01\x02\x03\xFF\xFE\xFD\x99\x98\xAA\xBB"s, "a file of another kind, or a damaged one"},
};

// The file as a writer leaves it that knows nothing of our checksum.
std::string without_checksum(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  auto header = nlohmann::ordered_json::parse(file.substr(sizeof length, length));
  REQUIRE(header["__metadata__"].erase("tril.crc32") == 1);
  return file_of(header.dump(), file.substr(sizeof length + length));
}

void check_refused(const Outcome& outcome, const std::string& where, const std::string& what) {
  INFO(outcome.err);
  CHECK((outcome.code == 1 || outcome.code == 2));
  CHECK(outcome.out.empty());
  CHECK(count_lines(outcome.err) == 1);
  CHECK_THAT(outcome.err, contains("error: " + where + ": expected ") && contains(what) && !contains("100000000"));
}

}  // namespace

TEST_CASE("files: each kind is known by how it begins, and none is found in a text") {
  for (const Wrong& wrong : kWrong) {
    INFO(wrong.name);
    CHECK_THAT(std::string(kind_of(wrong.contents).what), contains(wrong.what));
  }
  for (const char* text : {"GIF", "P", "{", "\xC3\xA9t\xC3\xA9", "\xEF\xBB\xBFmarked", "\ttab\r\n\f\x1b[0m"})
    CHECK(kind_of(text).what == "a text");
  // Cut inside a character, as the beginning of a file may be.
  CHECK(kind_of(std::string(4095, 'a') + "\xC3").what == "a text");
  CHECK(kind_of("a\xC3\xC3").kind == FileKind::kUnknown);
  CHECK(kind_of("a\0b"s).kind == FileKind::kUnknown);
}

TEST_CASE("files: a wrong one in place of a model is named by what it is, with what helps") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out runs/r --quiet").code == 0);
  for (const Wrong& wrong : kWrong) {
    shell.put(wrong.name, wrong.contents);
    for (const std::string command : {"sample", "eval", "info"})
      check_refused(shell.run("tril " + command + " " + wrong.name), wrong.name, "model file, got " + wrong.what);
  }
  CHECK(shell.run("tril sample poem.txt").err ==
        "error: poem.txt: expected a run folder or a model file, got a text; to train on it: tril train poem.txt\n");
  CHECK_THAT(shell.run("tril sample model.pt").err, contains("save its weights by safetensors"));
  const std::string optimizer = "runs/r/optimizer-2.safetensors";
  for (const std::string command : {"sample", "eval", "info"}) {
    check_refused(shell.run("tril " + command + " runs/r/config.json"), "runs/r/config.json",
                  "a text; give its run: runs/r");
    check_refused(shell.run("tril " + command + " runs/r/log.jsonl"), "runs/r/log.jsonl", "give its run: runs/r");
    check_refused(shell.run("cd runs/r; tril " + command + " log.jsonl"), "log.jsonl", "give its run: .");
    check_refused(shell.run("tril " + command + " " + optimizer), optimizer,
                  "got the state of a run's optimizer; give its run: runs/r");
    check_refused(shell.run("tril " + command + " runs"), "runs", "give the run in it, such as runs/r");
    check_refused(shell.run("mkdir -p none; tril " + command + " none"), "none", "tril train makes one");
  }
  REQUIRE(shell.run("cp -r runs/r runs/q; mkdir -p new; touch new/log.jsonl").code == 0);
  check_refused(shell.run("tril sample runs/"), "runs/", "give one of the 2 runs in it, such as runs/q");
  check_refused(shell.run("tril sample new"), "new", "a run saves at its first evaluation");
  const std::vector<float> zeros(4);
  write_safetensors(shell.folder() / "other.safetensors",
                    std::vector<SafetensorsTensor>{{"w", "F32", {4}, zeros.data()}});
  check_refused(shell.run("tril info other.safetensors"), "other.safetensors", "got a safetensors file without it");
}

TEST_CASE("files: a model in place of a text, or anything else that is none, is named by what it is") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 1 --out r --quiet").code == 0);
  for (const std::string line :
       {"train r/model.safetensors", "train book.txt r/last.safetensors", "eval r r/model.safetensors"})
    CHECK_THAT(shell.run("tril " + line).err,
               contains("safetensors: expected UTF-8 text, got a safetensors file; to go "
                        "on with a run: tril train --resume RUN"));
  for (const Wrong& wrong : kWrong) {
    if (wrong.what.starts_with("a text") || wrong.what == "a web page" || wrong.name == "lfs") continue;
    shell.put(wrong.name, wrong.contents);
    const std::string what = wrong.name == "noise" ? "byte 0xff at offset 3" : wrong.what;
    check_refused(shell.run("tril train " + wrong.name), wrong.name, ", got " + what);
    check_refused(shell.run("tril eval r " + wrong.name), wrong.name, ", got " + what);
  }
  check_refused(shell.run("tril eval r r"), "r", "got a run's folder; to go on with the run: tril train --resume r");
}

TEST_CASE("files: a wrong one behind --config, --resume and --compare is named by what it is") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 1 --out r --quiet").code == 0);
  shell.put("big.png", kWrong[5].contents + std::string(2 << 20, '\0'));
  check_refused(shell.run("tril train book.txt --config r/model.safetensors"), "r/model.safetensors",
                "a configuration in JSON, or a run, got a safetensors file");
  check_refused(shell.run("tril train book.txt --config big.png"), "big.png", "got a PNG image");
  check_refused(shell.run("tril train book.txt --config book.txt"), "book.txt", "a configuration in JSON");
  check_refused(shell.run("tril bench --compare big.png"), "big.png", "a result of tril bench --json, got a PNG image");
  check_refused(shell.run("tril train --resume r/last.safetensors"), "r/last.safetensors",
                "a run folder, got a file; give the folder that it lies in: r");
  check_refused(shell.run("tril train --resume book.txt"), "book.txt", "a run folder, got a file");
  shell.put("texts/a.txt", tiny_text());
  shell.put("texts/model.safetensors", shell.read("r/model.safetensors"));
  check_refused(shell.run("tril train texts"), "texts", "one with model.safetensors in it; move the model elsewhere");
  check_refused(shell.run("tril train --resume texts"), "texts", "it is gone; model.safetensors can still be sampled");
  shell.put("plain/a.txt", tiny_text());
  check_refused(shell.run("tril train --resume plain"), "plain", "got none; give the folder of a run");
  check_refused(shell.run("tril train --resume r --preset \"$(printf '\\033[2J')\""), "--preset", "got \\u001b[2J");
}

TEST_CASE("files: of weights that another program may have changed, the losses are not told") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r --quiet").code == 0);
  shell.put("changed", without_checksum(shell.read("r/model.safetensors")));
  const auto of = [&](const std::string& name) {
    return nlohmann::json::parse(shell.run("tril info --json " + name).out);
  };
  auto own = of("r"), changed = of("changed");
  CHECK(own.at("loss").is_number());
  CHECK(changed.at("step") == 2);
  CHECK(changed.at("trained_on") == nlohmann::json({"book.txt"}));
  for (const char* loss : {"loss", "best_loss", "best_step"}) CHECK_FALSE(changed.contains(loss));
  const Outcome sampled = shell.run("tril sample changed --length 20");
  CHECK(sampled.err.empty());
  CHECK(sampled.out == shell.run("tril sample r --length 20").out);
  CHECK(shell.run("tril eval changed book.txt --json").out == shell.run("tril eval r book.txt --json").out);
}

TEST_CASE("files: a best model whose weights another program has changed is measured again") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r --quiet").code == 0);
  std::string file = without_checksum(shell.read("r/model.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(sizeof header + header), file.end(),
            '\0');  // all equally likely
  shell.put("r/model.safetensors", file);
  REQUIRE(shell.run("tril train --resume r --steps 3 --eval-every 3 --quiet").code == 0);
  std::istringstream log(shell.read("r/log.jsonl"));
  std::vector<double> measured;
  for (std::string line; std::getline(log, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "best")
      measured.push_back(event.at("loss"));
  REQUIRE(measured.size() == 1);
  CHECK(measured[0] == Approx(std::log(9.0)).epsilon(1e-6));
  CHECK(nlohmann::json::parse(shell.run("tril info --json r").out).at("loss").get<double>() ==
        Approx(nlohmann::json::parse(shell.run("tril eval r --json").out).at("loss").get<double>()).epsilon(1e-6));
}

TEST_CASE("files: weights alone, with a model's metadata, are a model of which nothing else is said") {
  const TinyShell shell;
  REQUIRE(shell.train("--steps 2 --out r --quiet").code == 0);
  const Safetensors file = read_safetensors(shell.folder() / "r/model.safetensors");
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries)
    tensors.push_back({entry.name, entry.dtype, entry.shape, file.data.data() + entry.begin});
  auto metadata = file.metadata;
  metadata.erase("tril.state");
  write_safetensors(shell.folder() / "w", tensors, metadata);
  const Outcome sampled = shell.run("tril sample w --length 20");
  CHECK(sampled.code == 0);
  CHECK(sampled.err.empty());
  CHECK(sampled.out == shell.run("tril sample r --length 20").out);
  const auto info = nlohmann::json::parse(shell.run("tril info w --json").out);
  for (const char* unknown : {"step", "loss", "best_loss", "trained_on"}) CHECK_FALSE(info.contains(unknown));
  CHECK(shell.run("tril eval w book.txt --json").out == shell.run("tril eval r book.txt --json").out);
  for (const std::string line : {"tril eval w", "tril eval w book.txt --validation"})
    check_refused(shell.run(line), "w", "a model that tells what text it was trained on, got one that does not");
}

}  // namespace tril::test
