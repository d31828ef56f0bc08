#include "train/base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "train/base/cgroup.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

// The most that one read call is asked for; the system caps it at about 2 GiB anyway.
constexpr int64_t kMaxPiece = int64_t{1} << 30;

std::string reason(int error) { return std::generic_category().message(error); }

std::string_view kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Reads up to `count` bytes with one call; returns 0 at the end.
int64_t read_some(int fd, void* out, int64_t count, const std::string& where) {
  for (;;) {
    const ssize_t got = ::read(fd, out, static_cast<size_t>(std::min(count, kMaxPiece)));
    if (got >= 0) return got;
    if (errno == EAGAIN) {  // standard input may be non-blocking
      pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      fail(where, "a file that can be read", reason(errno));
    }
  }
}

// Appends everything up to the end, which is expected after `expected` bytes but may lie elsewhere.
void read_to_end(int fd, const std::string& where, int64_t expected, int64_t limit, std::string& out) {
  const auto check_size = [&](int64_t size, std::string_view got) {
    TRIL_CHECK(size <= limit, where, cat("at most ", limit, " bytes"), got);
    TRIL_CHECK(size <= usable_memory(), where,
               cat("at most ", usable_memory(), " bytes, which is all the memory there is"), got);
  };
  try {
    check_size(expected, cat(expected));
    const size_t start = out.size();
    out.resize(start + static_cast<size_t>(expected));
    size_t filled = start;
    int64_t got = -1;
    while (filled < out.size() && got != 0) {
      got = read_some(fd, out.data() + filled, static_cast<int64_t>(out.size() - filled), where);
      filled += static_cast<size_t>(got);
    }
    out.resize(filled);
    char more[1 << 16];
    while (got != 0) {
      got = read_some(fd, more, sizeof more, where);
      check_size(static_cast<int64_t>(out.size() - start) + got, "more");
      out.append(more, static_cast<size_t>(got));
    }
  } catch (const std::bad_alloc&) {
    fail(where, "enough memory to read it", "none left");
  } catch (const std::length_error&) { fail(where, "enough memory to read it", "none left"); }
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::release() { return std::exchange(fd_, -1); }

bool is_file_at(const Descriptor& file, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

int64_t usable_memory() {
  static const int64_t usable = [] {
    const int64_t pages = ::sysconf(_SC_PHYS_PAGES);
    const int64_t page = ::sysconf(_SC_PAGE_SIZE);
    return std::min(pages > 0 && page > 0 ? pages * page : kNoLimit, cgroup_memory().value_or(kNoLimit));
  }();
  return usable;
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  constexpr size_t kShown = 1000;
  const std::string where = printable(path_, kShown);
  TRIL_CHECK(!path_.empty(), "file", "a name", "an empty one");
  TRIL_CHECK(path_.find('\0') == std::string::npos, where, "a path", "one with a NUL character");
  const auto check_kind = [&](const struct stat& status) {
    TRIL_CHECK(S_ISREG(status.st_mode), where, "a regular file", kind(status.st_mode),
               S_ISFIFO(status.st_mode) ? "read a pipe as standard input" : "");
  };
  // Check the kind before opening, since opening a pipe waits and opening a device may act; and again afterwards, since
  // another file may have taken the name in between.
  struct stat status {};
  TRIL_CHECK(::stat(path_.c_str(), &status) == 0, where, "a file",
             errno == ENOENT ? "none of that name" : reason(errno));
  check_kind(status);
  file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  TRIL_CHECK(file_.get() >= 0, where, "a file that can be read", reason(errno));
  TRIL_CHECK(::fstat(file_.get(), &status) == 0, where, "a file that can be read", reason(errno));
  check_kind(status);
  size_ = status.st_size;
}

void InputFile::read(void* out, int64_t count) {
  auto* bytes = static_cast<char*>(out);
  for (int64_t done = 0; done < count;) {
    const int64_t got = read_some(file_.get(), bytes + done, count - done, printable(path_));
    TRIL_CHECK(got > 0, printable(path_), cat(size_, " bytes"), "fewer, as the file was cut short while it was read");
    done += got;
  }
}

void InputFile::read_rest(std::string& out, int64_t limit) {
  const int64_t at = ::lseek(file_.get(), 0, SEEK_CUR);
  read_to_end(file_.get(), printable(path_), std::max<int64_t>(size_ - std::max<int64_t>(at, 0), 0), limit, out);
}

std::string read_file(const std::string& path, int64_t limit) {
  std::string out;
  InputFile(path).read_rest(out, limit);
  return out;
}

std::string read_standard_input(int64_t limit) {
  std::string out;
  read_to_end(STDIN_FILENO, "standard input", 0, limit, out);
  return out;
}

DirectoryLock::DirectoryLock(const std::string& folder) : path_(folder + "/.lock") {
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  TRIL_CHECK(file_.get() >= 0, printable(folder), "a folder that can be locked", reason(errno));
  int result;
  do { result = ::flock(file_.get(), LOCK_EX | LOCK_NB); } while (result != 0 && errno == EINTR);
  if (result == 0) {
    held_ = true;
    return;
  }
  TRIL_CHECK(errno != EWOULDBLOCK, printable(folder), "a folder that nobody else uses",
             "one that another process trains in", "wait until it ends, or choose another folder");
  TRIL_CHECK(errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK || errno == EINVAL, printable(folder),
             "a folder that can be locked", reason(errno));
}

void occupy_standard_descriptors() {
  // Opening takes the lowest free number, so this fills the gaps from below. A write-only null device fails when read,
  // a read-only one when written.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", flags) < 0) return;
  }
}

}  // namespace tril
