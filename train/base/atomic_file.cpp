// The writing half of files.h.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "train/base/files.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

constexpr size_t kMaxPiece = size_t{1} << 30;
constexpr std::string_view kTemporaryPrefix = ".tril-tmp-";  // then the process's number, '-', 16 hexadecimal digits
constexpr size_t kRandomDigits = 16;

std::string reason(int error) { return std::generic_category().message(error); }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<size_t>(slash, 1));
}

std::string temporary_name() {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    random = static_cast<uint64_t>(now.tv_nsec) * 0x9E3779B97F4A7C15u;
  }
  std::string digits(kRandomDigits, '0');
  for (char& digit : digits) {
    digit = "0123456789abcdef"[random & 15];
    random >>= 4;
  }
  return cat(kTemporaryPrefix, ::getpid(), '-', digits);
}

// The process number in a name that temporary_name() makes, or 0 for any other name.
pid_t owner_of(std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix)) return 0;
  name.remove_prefix(kTemporaryPrefix.size());
  pid_t owner = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), owner);
  const std::string_view rest = name.substr(static_cast<size_t>(stop - name.data()));
  const bool ours = error == std::errc{} && owner > 0 && rest.size() == 1 + kRandomDigits && rest[0] == '-' &&
                    rest.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
  return ours ? owner : 0;
}

// What limited the writer, if a limit was the error: the limit on one file, or the space on the disk.
std::string room(int error, const std::string& folder) {
  rlimit limit{};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return cat(", the limit on one file is ", limit.rlim_cur, " bytes (ulimit -f)");
  }
  struct statvfs disk {};
  if ((error == ENOSPC || error == EDQUOT || error == EFBIG) && ::statvfs(folder.c_str(), &disk) == 0) {
    return cat(", ", uint64_t{disk.f_bavail} * disk.f_frsize, " bytes available");
  }
  return {};
}

// Some file systems have no fsync for a folder or file; that is not a failure to write.
bool sync(int fd) {
  int result;
  do { result = ::fsync(fd); } while (result != 0 && errno == EINTR);
  return result == 0 || errno == EINVAL || errno == ENOTSUP;
}

// Returns 0, or the error number.
int sync_folder_quietly(const std::string& folder) {
  const Descriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return handle.get() >= 0 && sync(handle.get()) ? 0 : errno;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, int64_t bytes_needed)
    : path_(std::move(path)), folder_(folder_of(path_)), bytes_needed_(bytes_needed) {
  TRIL_CHECK(!path_.empty() && path_.find('\0') == std::string::npos, printable(path_), "a path", "none");
  struct stat before {};
  const bool exists = ::stat(path_.c_str(), &before) == 0;
  // A rename would replace a device or a pipe by a file.
  TRIL_CHECK(!exists || S_ISREG(before.st_mode), printable(path_), "a place for a regular file",
             S_ISDIR(before.st_mode) ? "a folder" : "a pipe, socket or device");
  for (int attempt = 0; file_.get() < 0; ++attempt) {
    const std::string temporary = folder_ + "/" + temporary_name();
    file_ = Descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.get() >= 0) temporary_ = temporary;
    if (file_.get() < 0 && (errno != EEXIST || attempt == 100)) fail_with("make a file in its folder", errno);
  }
  // A private file stays private. If the mode cannot be set, the write goes on all the same.
  if (exists) static_cast<void>(::fchmod(file_.get(), before.st_mode & 0777));
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  bytes_needed_ = std::max(bytes_needed_, written_ + static_cast<int64_t>(size));
  while (size > 0) {
    const ssize_t done = ::write(file_.get(), bytes, std::min(size, kMaxPiece));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_with("write", done < 0 ? errno : EIO);
    bytes += done;
    size -= static_cast<size_t>(done);
    written_ += done;
  }
}

void AtomicFile::commit() {
  if (!sync(file_.get())) fail_with("bring it to the disk", errno);
  // The descriptor is gone even where close reports an error, so it is never closed twice.
  if (::close(file_.release()) != 0 && errno != EINTR) fail_with("close", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with("rename the finished file", errno);
  temporary_.clear();
  if (const int error = sync_folder_quietly(folder_); error != 0) {
    throw WriteError(cat(printable(path_), ": expected its folder to reach the disk, got ", reason(error),
                         "; the new file is in place, but a power failure now may bring the old one back"),
                     true);
  }
}

void AtomicFile::fail_with(std::string_view action, int error) const {
  const std::string size =
      bytes_needed_ > 0 ? cat(" (", bytes_needed_, " bytes needed", room(error, folder_), ")") : room(error, folder_);
  throw WriteError(cat(printable(path_), ": expected to ", action, ", got ", reason(error), size,
                       "; nothing was written, what was there before is intact"),
                   false);
}

void write_file_atomically(const std::string& path, const std::function<void(AtomicFile&)>& writer,
                           int64_t bytes_needed) {
  AtomicFile file(path, bytes_needed);
  writer(file);
  file.commit();
}

void write_file_atomically(const std::string& path, std::string_view contents) {
  write_file_atomically(
      path, [&](AtomicFile& file) { file.write(contents); }, static_cast<int64_t>(contents.size()));
}

void sync_folder(const std::string& folder) {
  if (const int error = sync_folder_quietly(folder); error != 0) {
    throw WriteError(cat(printable(folder), ": expected the folder to reach the disk, got ", reason(error)), true);
  }
}

int64_t remove_stale_temporaries(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return 0;
  std::vector<std::string> stale;
  while (const dirent* entry = ::readdir(entries.get())) {
    const pid_t owner = owner_of(entry->d_name);
    if (owner != 0 && ::kill(owner, 0) != 0 && errno == ESRCH) stale.push_back(folder + "/" + entry->d_name);
  }
  // unlink does not remove folders, should one have such a name.
  return std::count_if(stale.begin(), stale.end(), [](const auto& path) { return ::unlink(path.c_str()) == 0; });
}

void check_writable(const std::string& folder) {
  const std::string probe = folder + "/" + temporary_name();
  const Descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  TRIL_CHECK(file.get() >= 0, printable(folder), "a folder that can be written to", reason(errno));
  TRIL_CHECK(::unlink(probe.c_str()) == 0, printable(folder), "a folder whose files can be removed", reason(errno));
}

}  // namespace tril
