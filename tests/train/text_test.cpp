#include "train/data/text.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/catch.h"
#include "train/data/text_files.h"
#include "train/data/text_place.h"
#include "train/data/tokenizer.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

using namespace std::string_literals;

Text load(const std::vector<std::string>& paths, TokenKind tokens = TokenKind::kChar) {
  return load_texts(paths, {.tokens = tokens});
}

Text load_all(const std::vector<std::string>& paths, TokenKind tokens = TokenKind::kChar) {
  return load_texts(paths, {.tokens = tokens, .all_files = true});
}

std::string load_refusal(const std::vector<std::string>& paths, TokenKind tokens = TokenKind::kChar) {
  return error_of([&] { (void)load(paths, tokens); });
}

const std::string kPng = "\x89PNG\r\n\x1A\n\0\0\0\rIHDR"s, kCompiled = "\xA7\r\r\n\0\0\0\0code"s;

}  // namespace

TEST_CASE("texts: one file is its bytes, and its line ends are counted") {
  const TempFolder folder;
  const std::string contents = "a\nb\r\nc\rd\r\r\n\0é"s;
  const std::string path = folder.put("t.txt", contents);
  const Text text = load({path});
  CHECK(text.name == path);
  CHECK(text.bytes == contents);
  CHECK(text.files == 1);
  CHECK(text.line_ends.lf == 1);
  CHECK(text.line_ends.crlf == 2);
  CHECK(text.line_ends.cr == 2);
  REQUIRE(text.warnings.size() == 1);
  CHECK_THAT(text.warnings[0], contains(path + ": line ends are 2 CR alone, 2 CRLF, 1 LF;"));
  CHECK(text.notes.empty());
}

TEST_CASE("texts: CRLF is noted, LF is not") {
  const TempFolder folder;
  const Text windows = load({folder.put("w", "a\r\nb\r\n")});
  CHECK(windows.bytes == "a\r\nb\r\n");
  CHECK(windows.warnings.empty());
  REQUIRE(windows.notes.size() == 1);
  CHECK_THAT(windows.notes[0], contains("0 CR alone, 2 CRLF, 0 LF"));
  const Text plain = load({folder.put("u", "a\nb\n")});
  CHECK(plain.notes.empty());
  CHECK(plain.warnings.empty());
  CHECK(count_line_ends("\r").cr == 1);
  CHECK(count_line_ends("").lf == 0);
}

TEST_CASE("texts: a byte order mark at the start goes, and offsets still count it") {
  const TempFolder folder;
  const std::string path = folder.put("t", "\xEF\xBB\xBFhi\xEF\xBB\xBF");
  const Text text = load({path});
  CHECK(text.bytes == "hi\xEF\xBB\xBF");
  REQUIRE(text.notes.size() == 1);
  CHECK_THAT(text.notes[0], contains(path + ": a byte order mark"));
  CHECK(load({path}, TokenKind::kByte).bytes == "\xEF\xBB\xBFhi\xEF\xBB\xBF");
  CHECK_THAT(load_refusal({folder.put("bad", "\xEF\xBB\xBFhi\x92")}), contains("byte 0x92 at offset 5"));
}

TEST_CASE("texts: folders are read below, in order, without what is hidden or no file") {
  const TempFolder folder;
  folder.put("d/b.txt", "b\n");
  folder.put("d/a/z.txt", "az");
  folder.put("d/a/.hidden", "no");
  folder.put("d/.git/x", "no");
  folder.put("d/c", "c");
  folder.put("d/empty", "");
  REQUIRE(::mkfifo((folder / "d/pipe").c_str(), 0666) == 0);
  std::filesystem::create_directory_symlink("..", folder / "d/loop");
  std::filesystem::create_symlink("c", folder / "d/link");
  const Text text = load({folder / "d"});
  CHECK(text.bytes == "az\nb\nc");
  CHECK(text.files == 3);
  CHECK(text.name == folder / "d");
  REQUIRE(text.notes.size() == 5);
  CHECK_THAT(text.notes[0], contains("2 hidden left out"));
  CHECK_THAT(text.notes[1], contains("2 left out that are no regular files"));
  CHECK_THAT(text.notes[2], contains("1 left out, as it is the same file as another"));
  CHECK_THAT(text.notes[3], contains("d/empty: empty"));
  CHECK_THAT(text.notes[4], contains("1 file does not end in a new line and is followed by another; a line feed was "));
}

TEST_CASE("texts: several come in the order given, joined by a new line where one is missing") {
  const TempFolder folder;
  const std::string a = folder.put("a", "a"), b = folder.put("b", "b\n"),
                    c = folder.put("c",
                                   "\xEF\xBB\xBF"
                                   "c\r"),
                    d = folder.put("d", "d");
  const Text text = load({d, c, b, a, d});
  CHECK(text.bytes == "d\nc\rb\na");
  CHECK(text.name == d + " and 3 more");
  CHECK(text.files == 4);
  REQUIRE(text.warnings.size() == 2);
  CHECK(text.warnings[0] == d + ": counted once, as it is the same file as " + d + "; --all-files counts it again");
  CHECK(load_all({d, c, b, a, d}).bytes == "d\nc\rb\na\nd");
}

TEST_CASE("texts: what cannot be read as text is refused by name") {
  const TempFolder folder;
  CHECK_THAT(load_refusal({}), contains("at least one file"));
  CHECK_THAT(load_refusal({folder / "none"}), contains(folder / "none: expected a file, got none of that name"));
  CHECK(load_refusal({folder.put("e", "")}) == folder / "e: expected a text, got an empty file");
  CHECK_THAT(load_refusal({folder.put("m", "\xEF\xBB\xBF")}), contains("only a byte order mark"));
  CHECK_THAT(load_refusal({folder.put("ok", "x"), folder / "e"}), contains(folder / "e: expected a text"));
  folder.put("d/.hidden", "x");
  CHECK_THAT(load_refusal({folder / "d"}), contains("d: expected a folder with text files, got one with none"));
  folder.put("f/empty", "");
  CHECK_THAT(load_refusal({folder / "f"}), contains("only empty files"));
  folder.put("g/a.txt", "fine");
  folder.put("g/b.txt", std::string(7047, 'x') + '\x92');
  CHECK_THAT(load_refusal({folder / "g"}), contains(folder / "g/b.txt: expected UTF-8 text, got byte 0x92 at offset "
                                                             "7047"));
  CHECK(load({folder / "g"}, TokenKind::kByte).bytes.size() == 4 + 1 + 7048);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  CHECK_THAT(load_refusal({folder / "pipe"}), contains("got a pipe"));
  CHECK_THAT(load_refusal({"/dev/null"}), contains("got a device"));
  CHECK_THAT(load_refusal({"-", "-"}), contains("standard input (-) once"));

  folder.put("locked/x", "x");
  REQUIRE(::chmod((folder / "locked").c_str(), 0) == 0);
  {
    const Unprivileged nobody;
    CHECK_THAT(load_refusal({folder / "locked"}),
               contains("locked: expected a folder that can be read, got Permission"));
  }
  REQUIRE(::chmod((folder / "locked").c_str(), 0755) == 0);
}

TEST_CASE("texts: between two files comes a line feed that the texts or the model know, or nothing") {
  const TempFolder folder;
  const std::string a = folder.put("a", "aa"), b = folder.put("b", "bb"), c = folder.put("c", "c\nc"),
                    w = folder.put("w", "w\r\nw"), m = folder.put("m", "m\rm");
  const auto joined = [](const std::vector<std::string>& paths, std::optional<bool> line_feed,
                         TokenKind tokens = TokenKind::kChar) {
    return load_texts(paths, {.tokens = tokens, .line_feed = line_feed}).bytes;
  };
  CHECK(joined({a, b}, {}) == "aabb");
  CHECK(joined({a, c, b}, {}) == "aa\nc\nc\nbb");
  CHECK(joined({a, b, c}, {}) == "aa\nbb\nc\nc");  // also where the line feed comes last
  CHECK(joined({a, w}, {}) == "aa\nw\r\nw");
  CHECK(joined({a, m, b}, {}) == "aam\rmbb");  // lines that end in CR alone are no reason for a line feed
  CHECK(joined({a, b}, true) == "aa\nbb");
  CHECK(joined({a, c, b}, false) == "aac\ncbb");
  CHECK(joined({a, b}, {}, TokenKind::kByte) == "aa\nbb");  // bytes know it
  CHECK(joined({a}, true) == "aa");
  CHECK_THAT(load({a, b}).notes.at(0), contains("nothing was put between, as the vocabulary has no line feed"));
  CHECK_THAT(load({a, b, c}).notes.at(0), contains("2 files do not end in a new line and are followed by another; a"));
  CHECK(load({c}).notes.empty());
  const std::string marked = folder.put("marked", "\xEF\xBB\xBFxy");
  CHECK(joined({a, marked, c}, {}) == "aa\nxy\nc\nc");
}

TEST_CASE("texts: what a vocabulary of several files holds is in them, and they can be encoded by it again") {
  const TempFolder folder;
  const std::vector<std::string> bare = {folder.put("a", "abc"), folder.put("b", "cab")},
                                 lines = {folder.put("c", "a\nb"), folder.put("d", "c")};
  for (const auto& paths : {bare, lines}) {
    const Text text = load(paths);
    const Tokenizer tokenizer = Tokenizer::characters_of(text.bytes, "t");
    std::string files;
    for (const std::string& path : paths) files += contents_of(path);
    CHECK(tokenizer == Tokenizer::characters_of(files, "t"));
    CHECK(tokenizer.encode(text.bytes, "t").size() == files.size() + (paths == lines ? 1 : 0));
    // Also those of a model that knows the line feed, where the texts to measure have none.
    const bool known = tokenizer.find(U'\n').has_value();
    CHECK(tokenizer.encode(load_texts(bare, {.line_feed = known}).bytes, "t").size() == (known ? 7 : 6));
  }
}

TEST_CASE("texts: what is no text is left out of folders with one line, and taken where the user insists") {
  const TempFolder folder;
  folder.put("d/__pycache__/x.pyc", kCompiled);
  folder.put("d/a.txt", "a\n");
  const Text one = load({folder / "d"});
  CHECK(one.bytes == "a\n");
  CHECK(one.files == 1);
  REQUIRE(one.notes.size() == 1);
  CHECK(one.notes[0] == folder / "d/__pycache__/x.pyc: left out, as it is no text; --all-files insists on it");
  folder.put("d/image.png", kPng);
  folder.put("d/late", std::string(100'000, 'x') + '\0');
  folder.put("d/noise", "\x93\x01\xFF");
  const Text several = load({folder / "d"});
  CHECK(several.bytes == "a\n");
  REQUIRE(several.notes.size() == 1);
  CHECK_THAT(several.notes[0],
             contains("4 files left out that are no text, such as ") && contains("; --all-files insists on them"));
  // Bytes are taken as they are, and so are files that the user names.
  CHECK(load({folder / "d"}, TokenKind::kByte).files == 5);
  CHECK_THAT(error_of([&] { (void)load_all({folder / "d"}); }), contains("x.pyc: expected UTF-8 text, got byte 0xa7"));
  CHECK_THAT(load_refusal({folder / "d/image.png"}), contains("image.png: expected UTF-8 text, got a PNG image"));
  CHECK(load({folder.put("nul", "a\0b"s)}).bytes == "a\0b"s);
  folder.put("e/nul", "a\0b"s);
  CHECK(load_refusal({folder / "e"}) ==
        folder / "e: expected a text, got only files that are no text; --tokens byte takes any bytes");
  CHECK(load_all({folder / "e"}).bytes == "a\0b"s);
}

TEST_CASE("texts: a file that is no text and larger than memory is not read") {
  const TempFolder folder;
  folder.put("d/a.txt", "a\n");
  const std::string huge = folder.put("d/huge", "");
  if (::truncate(huge.c_str(), off_t{1} << 43) != 0) {
    WARN("no sparse files here: not checked");
    return;
  }
  CHECK(load({folder / "d"}).bytes == "a\n");
}

TEST_CASE("texts: texts in other encodings are asked for as UTF-8, not left out") {
  const TempFolder folder;
  folder.put("latin/a", "caf\xE9\n");
  CHECK_THAT(load_refusal({folder / "latin"}), contains("latin/a: expected UTF-8 text, got byte 0xe9 at offset 3"));
  folder.put("wide/a", "\xFF\xFEh\0i\0\n\0"s);
  CHECK_THAT(load_refusal({folder / "wide"}), contains("this is UTF-16"));
  CHECK_FALSE(is_binary("\xFE\xFF\0h\0i"s));
  CHECK(is_binary("\xFE\xFF\0h\0\0"s));
  CHECK(is_binary("\xFF\xFE\0\x01"s));
  CHECK(is_binary("h\0i\0"s));
  CHECK_FALSE(is_binary("a\tb\x1B[1m\x01"));  // UTF-8
  CHECK_FALSE(is_binary(""));
  CHECK(is_binary(kPng));
  CHECK(is_binary(kCompiled));
  CHECK(is_binary("%PDF-1.7\n%\xE2\xE3\n"));
}

TEST_CASE("texts: a file counts once, by whatever names and links") {
  const TempFolder folder;
  const std::string a = folder.put("d/a", "a\n"), other = folder.put("other", "o\n");
  folder.put("d/sub/b", "b\n");
  std::filesystem::create_symlink("a", folder / "d/link");
  std::filesystem::create_hard_link(a, folder / "d/hard");
  std::filesystem::create_symlink("../other", folder / "d/outside");
  std::filesystem::create_symlink("itself", folder / "d/itself");
  std::filesystem::create_directory_symlink(".", folder / "d/sub/loop");
  const std::string d = folder / "d";
  const Text text = load({d});
  CHECK(text.bytes == "a\no\nb\n");
  REQUIRE(text.notes.size() == 2);
  CHECK_THAT(text.notes[0], contains("2 left out that are no regular files"));
  CHECK(text.notes[1] == d + ": 2 left out, as they are the same files as others (links, or named before)");
  CHECK(load({d, d}).bytes == text.bytes);
  CHECK(load({folder / "d/sub", d}).bytes == "b\na\no\n");
  CHECK(load({other, d}).bytes == "o\na\nb\n");
  // What the user names is never left out without a warning.
  CHECK(load({d, other}).bytes == text.bytes);
  CHECK(load({d, other}).warnings.at(0) ==
        other + ": counted once, as it is the same file as " + d + "/outside; --all-files counts it again");
  CHECK(load({a, folder / "d/./a", folder / "d/hard"}).warnings.size() == 2);
  CHECK(load_all({d}).bytes == "a\na\na\no\nb\n");
  CHECK(load_all({a, a}).bytes == "a\na\n");
  CHECK_THAT(load_refusal({folder / "d/itself"}), contains("d/itself: expected a file"));
}

TEST_CASE("text place: paths come back, and what a model file tells of them are names") {
  const TempFolder folder;
  CHECK_FALSE(stored_text_paths(folder.path()).has_value());
  const std::vector<std::string> paths = {"/a \"quoted\"\n path/é", "-", "/"};
  store_text_paths(folder.path(), paths);
  CHECK(stored_text_paths(folder.path()) == paths);
  store_text_paths(folder.path(), {});
  CHECK(stored_text_paths(folder.path()) == std::vector<std::string>());
  CHECK(text_names({"/home/ann/book.txt", "/home/ann/notes/", "/x/./y/..", "-", "/", "b"}) ==
        std::vector<std::string>{"book.txt", "notes", "x", "-", "text", "b"});
  for (const char* wrong : {"", "{}", "[]", "{\"paths\":1}", "{\"paths\":[1]}", "{\"paths\":[],\"paths\":[]}",
                            "{\"places\":[]}", "{\"paths\":[]}x", "{\"paths\":[\"\xFF\"]}"}) {
    folder.put(".text.json", wrong);
    CHECK_THAT(error_of([&] { (void)stored_text_paths(folder.path()); }), contains(".text.json: expected "));
  }
}

}  // namespace tril::test
