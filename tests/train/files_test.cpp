#include "train/base/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

// Runs `call` with standard input taken from `path`.
template <class Call>
void with_input(const std::string& path, Call&& call) {
  const int saved = ::dup(STDIN_FILENO);
  const int fd = ::open(path.c_str(), O_RDONLY);
  REQUIRE(fd >= 0);
  ::dup2(fd, STDIN_FILENO);
  ::close(fd);
  call();
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
}

// Files may grow to `bytes` only, while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

// The exit status of `body` in a process of its own.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

}  // namespace

TEST_CASE("files: a whole file comes back byte for byte") {
  const TempFolder folder;
  std::string bytes;
  for (int i = 0; i < 200'000; ++i) bytes += static_cast<char>(i * 7 % 256);
  CHECK((read_file(folder.put("a", bytes)) == bytes));
  CHECK(read_file(folder.put("empty", "")).empty());
  ::symlink("a", (folder / "link").c_str());
  CHECK((read_file(folder / "link") == bytes));
  CHECK(read_file("/proc/self/status").find("Name:") == 0);  // its size is said to be 0
}

TEST_CASE("files: what is no readable regular file is refused at once, with path and reason") {
  const TempFolder folder;
  const auto start = std::chrono::steady_clock::now();
  const auto refusal = [](const std::string& path) { return error_of([&] { (void)read_file(path); }); };

  CHECK(refusal(folder / "none") == (folder / "none") + ": expected a file, got none of that name");
  CHECK(refusal(folder.path()) == folder.path() + ": expected a regular file, got a folder");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  CHECK(refusal(folder / "pipe") ==
        (folder / "pipe") + ": expected a regular file, got a pipe; read a pipe as standard input");
  CHECK(refusal("/dev/null") == "/dev/null: expected a regular file, got a device");
  CHECK_THAT(refusal(""), contains("file: expected a name, got an empty one"));
  CHECK_THAT(refusal(std::string("a\0b", 3)), contains("a\\u0000b: expected a path"));
  CHECK_THAT(refusal("\u202a" + folder.path()), contains("\\u202a/"));
  CHECK_THAT(refusal("\x92"), contains("\\x92: expected a file"));

  const std::string secret = folder.put("secret", "x");
  REQUIRE(::chmod(secret.c_str(), 0) == 0);
  {
    const Unprivileged nobody;
    CHECK(refusal(secret) == secret + ": expected a file that can be read, got Permission denied");
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
}

TEST_CASE("files: a limit refuses before anything is read") {
  const TempFolder folder;
  const std::string path = folder.put("ten", "0123456789");
  CHECK(read_file(path, 10) == "0123456789");
  CHECK(error_of([&] { (void)read_file(path, 9); }) == path + ": expected at most 9 bytes, got 10");

  // Sparse: larger than any memory, on no disk at all.
  const std::string huge = folder.put("huge", "");
  if (::truncate(huge.c_str(), off_t{1} << 43) == 0) {
    CHECK_THAT(error_of([&] { (void)read_file(huge); }), contains("all the memory there is"));
  }
  CHECK_THAT(error_of([&] { (void)read_file("/proc/self/status", 5); }), contains("at most 5 bytes"));
}

TEST_CASE("files: one that was cut short while it is read is an error, one that grew is read to its end") {
  const TempFolder folder;
  const std::string path = folder.put("a", "0123456789");
  char buffer[10];

  InputFile shrinking(path);
  CHECK(shrinking.size() == 10);
  REQUIRE(::truncate(path.c_str(), 4) == 0);
  CHECK_THAT(error_of([&] { shrinking.read(buffer, 10); }), contains("10 bytes, got fewer"));

  InputFile growing(path);
  growing.read(buffer, 2);
  std::ofstream(path, std::ios::app) << "more";
  std::string rest = "<";
  growing.read_rest(rest, kNoLimit);
  CHECK(rest == "<23more");
}

TEST_CASE("files: standard input is read to its end, within the limit") {
  const TempFolder folder;
  const std::string text(300'000, 'q');
  with_input(folder.put("in", text), [&] {
    CHECK((read_standard_input() == text));
    CHECK(read_standard_input().empty());
  });
  with_input(folder / "in", [&] {
    CHECK_THAT(error_of([] { (void)read_standard_input(1000); }), contains("standard input: expected at most 1000"));
  });
  with_input(folder.path(),
             [&] { CHECK_THAT(error_of([] { (void)read_standard_input(); }), contains("Is a directory")); });
}

TEST_CASE("atomic files: appear whole, replace what was there and leave nothing else") {
  const TempFolder folder;
  const std::string path = folder / "model";
  write_file_atomically(path, "first");
  CHECK(contents_of(path) == "first");
  CHECK(folder.names() == std::set<std::string>{"model"});

  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  write_file_atomically(path, [&](AtomicFile& file) {
    file.write("sec");
    file.write("ond");
    CHECK(contents_of(path) == "first");
    CHECK(folder.names().size() == 2);
  });
  CHECK(contents_of(path) == "second");
  CHECK(folder.names() == std::set<std::string>{"model"});
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);

  const std::string large(3'000'000, 'x');
  write_file_atomically(path, large);
  CHECK((contents_of(path) == large));
  write_file_atomically(folder / std::string(255, 'n'), "the longest name there is");
  CHECK(contents_of(folder / std::string(255, 'n')) == "the longest name there is");
}

TEST_CASE("atomic files: without commit, or when the writer throws, the old file stays and the temporary goes") {
  const TempFolder folder;
  const std::string path = folder.put("model", "old");
  { AtomicFile(path).write("new"); }
  CHECK_THROWS(write_file_atomically(path, [](AtomicFile& file) {
    file.write("new");
    throw std::runtime_error("stopped");
  }));
  CHECK(contents_of(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"model"});
}

TEST_CASE("atomic files: a full disk leaves the old file, removes the temporary and tells the sizes") {
  const TempFolder folder;
  const std::string path = folder.put("model", "old");
  const std::string large(50'000, 'x');
  std::string message;
  bool committed = true;
  {
    const FileSizeLimit limit(20'000);
    try {
      write_file_atomically(path, large);
    } catch (const WriteError& error) {
      message = error.what();
      committed = error.committed();
    }
  }
  CHECK(message == path +
                       ": expected to write, got File too large (50000 bytes needed, the limit on one file is 20000 "
                       "bytes (ulimit -f)); nothing was written, what was there before is intact");
  CHECK_FALSE(committed);
  CHECK(contents_of(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"model"});
}

TEST_CASE("atomic files: refuse a place where no regular file can be") {
  const TempFolder folder;
  const auto refusal = [](const std::string& path) { return error_of([&] { write_file_atomically(path, "x"); }); };
  CHECK(refusal(folder.path()) == folder.path() + ": expected a place for a regular file, got a folder");
  std::filesystem::create_symlink("/dev/full", folder / "device");  // should the check fail, only the link is replaced
  CHECK_THAT(refusal(folder / "device"), contains("a pipe, socket or device"));
  CHECK_THAT(refusal(folder / "no/model"), contains("No such file or directory"));
  CHECK_THAT(refusal(folder.put("file", "") + "/model"), contains("Not a directory"));
  CHECK_THAT(refusal(""), contains("expected a path"));
  CHECK_THAT(refusal("\u202a/x"), contains("\\u202a/x"));
  CHECK(folder.names() == std::set<std::string>{"device", "file"});
}

TEST_CASE("atomic files: a read-only folder is an error, one that cannot be synced leaves the file in doubt") {
  const TempFolder folder;
  const std::string path = folder.put("run/model", "old");
  const std::string run = folder / "run";
  if (::geteuid() == 0) REQUIRE(::chown(run.c_str(), 65534, 65534) == 0);
  const auto write = [&](bool& committed) {
    const Unprivileged nobody;
    try {
      write_file_atomically(path, "new");
    } catch (const WriteError& error) {
      committed = error.committed();
      return std::string(error.what());
    }
    return std::string();
  };
  bool committed = true;
  REQUIRE(::chmod(run.c_str(), 0555) == 0);
  CHECK_THAT(write(committed), contains("Permission denied (3 bytes needed); nothing was written"));
  CHECK_FALSE(committed);
  CHECK(contents_of(path) == "old");
  {
    const Unprivileged nobody;
    CHECK_THAT(error_of([&] { check_writable(run); }), contains(run + ": expected a folder that can be written to"));
  }

  REQUIRE(::chmod(run.c_str(), 0333) == 0);  // files can be made in it, but it cannot be opened
  CHECK_THAT(write(committed), contains("Permission denied; the new file is in place"));
  CHECK(committed);
  REQUIRE(::chmod(run.c_str(), 0755) == 0);
  CHECK(contents_of(path) == "new");
}

TEST_CASE("files: stale temporaries go, and nothing else does") {
  const TempFolder folder;
  const std::string dead = std::to_string(dead_process()), alive = std::to_string(::getpid());
  const std::string random = "-0123456789abcdef";
  folder.put(".tril-tmp-" + dead + random, "stale");
  const std::set<std::string> kept{".tril-tmp-" + alive + random,
                                   ".tril-tmp-" + dead + random + "0",
                                   ".tril-tmp-" + dead + "-0123456789ABCDEF",
                                   ".tril-tmp-" + dead,
                                   ".tril-tmp-x" + random,
                                   ".tril-tmp--1" + random,
                                   ".tril-tmp-99999999999999999999" + random,
                                   "tril-tmp-" + dead + random,
                                   "model"};
  for (const std::string& name : kept) folder.put(name, "kept");
  std::filesystem::create_directory(folder / (".tril-tmp-" + dead + "-00000000000000ff"));

  CHECK(remove_stale_temporaries(folder.path()) == 1);
  std::set<std::string> expected = kept;
  expected.insert(".tril-tmp-" + dead + "-00000000000000ff");
  CHECK(folder.names() == expected);
  CHECK(remove_stale_temporaries(folder / "none") == 0);
}

TEST_CASE("files: what a killed writer leaves is recognised as stale") {
  const TempFolder folder;
  in_child([&] {
    AtomicFile file(folder / "model");
    file.write("half");
    return ::raise(SIGKILL);
  });
  CHECK(folder.names().size() == 1);
  CHECK(remove_stale_temporaries(folder.path()) == 1);
  CHECK(folder.names().empty());
}

TEST_CASE("directory lock: one process at a time, however the holder ends") {
  const TempFolder folder;
  const auto attempt = [&] { return error_of([&] { const DirectoryLock lock(folder.path()); }); };
  {
    const DirectoryLock lock(folder.path());
    CHECK(lock.held());
    CHECK_THAT(attempt(), contains(folder.path() + ": expected a folder that nobody else uses, got one that another "
                                                   "process trains in"));
    CHECK(in_child([&] { return attempt().empty() ? 1 : 0; }) == 0);
  }
  CHECK(attempt().empty());
  in_child([&] {
    const DirectoryLock lock(folder.path());
    return ::raise(SIGKILL);
  });
  CHECK(attempt().empty());
  CHECK_THAT(error_of([&] { const DirectoryLock lock(folder / "none"); }), contains("No such file or directory"));
}

TEST_CASE("files: the writability probe leaves nothing behind and names what is wrong") {
  const TempFolder folder;
  check_writable(folder.path());
  CHECK(folder.names().empty());
  CHECK_THAT(error_of([&] { check_writable(folder / "none"); }), contains("No such file or directory"));
  CHECK_THAT(error_of([&] { check_writable(folder.put("file", "")); }), contains("Not a directory"));
}

TEST_CASE("files: with standard output closed, no file opened later takes its number") {
  const TempFolder folder;
  const int status = in_child([&] {
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    occupy_standard_descriptors();
    const int fd = ::open((folder / "model").c_str(), O_WRONLY | O_CREAT, 0666);
    char byte = 'x';
    return fd > STDERR_FILENO && ::write(STDOUT_FILENO, &byte, 1) < 0 && ::read(STDIN_FILENO, &byte, 1) < 0 ? 0 : 1;
  });
  CHECK(status == 0);
}

}  // namespace tril::test
