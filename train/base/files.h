// The room train/base: what training needs of the system and of users: files, threads, signals, numbers, the log.

// Files by POSIX calls: each is read or written whole, or an error names the path and the system's reason.
// Objects here own what they open; any thread may use them, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace tril {

// Owns an open descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release();

 private:
  int fd_;
};

// Whether the file at `path` is still this open one. As long as it is open, no other file can get its inode number.
[[nodiscard]] bool is_file_at(const Descriptor& file, const std::string& path);

// The machine's memory in bytes, or the control group's limit. A larger file cannot be read whole.
[[nodiscard]] int64_t usable_memory();

// A regular file, read from front to back. Directories, pipes and devices are refused without being opened.
class InputFile {
 public:
  explicit InputFile(std::string path);
  [[nodiscard]] const std::string& path() const { return path_; }
  // Its size when it was opened.
  [[nodiscard]] int64_t size() const { return size_; }
  // Reads exactly `count` bytes. Throws if the file ends before: it was cut short meanwhile.
  void read(void* out, int64_t count);
  // Appends all that is left to `out`. A file that grew meanwhile is read to its end, up to `limit` bytes in all.
  void read_rest(std::string& out, int64_t limit);

 private:
  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;
};

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Reads the whole file. Throws, before anything is allocated, if it has more than `limit` bytes or than the memory.
[[nodiscard]] std::string read_file(const std::string& path, int64_t limit = kNoLimit);
// Standard input up to its end.
[[nodiscard]] std::string read_standard_input(int64_t limit = kNoLimit);

// A write that failed. Not committed: nothing has changed, and what was there before is intact. Committed: the new file
// is in place, but the system could not promise that it survives a power failure.
class WriteError : public Error {
 public:
  WriteError(const std::string& text, bool committed) : Error(text), committed_(committed) {}
  [[nodiscard]] bool committed() const { return committed_; }

 private:
  bool committed_;
};

// A file that appears whole or not at all. It is written under a temporary name in the same folder; commit() syncs it,
// renames it to `path` and syncs the folder. Until then what was at `path` is untouched. If commit() throws WriteError,
// committed() says which file is there. Without commit() the temporary file is removed. A symbolic link at `path` is
// replaced, not followed.
class AtomicFile {
 public:
  // `bytes_needed`, if not 0, is told to the user when space runs out.
  explicit AtomicFile(std::string path, int64_t bytes_needed = 0);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void fail_with(std::string_view action, int error) const;

  std::string path_;
  std::string folder_;
  std::string temporary_;  // empty once renamed
  int64_t bytes_needed_;
  int64_t written_ = 0;
  Descriptor file_;
};

void write_file_atomically(const std::string& path, const std::function<void(AtomicFile&)>& writer,
                           int64_t bytes_needed = 0);
void write_file_atomically(const std::string& path, std::string_view contents);

// Makes the names in a folder durable: needed after a rename that AtomicFile did not make.
void sync_folder(const std::string& folder);

// Removes the temporary files that an AtomicFile left in `folder` because its process was killed: only those whose name
// holds the number of a process that no longer lives. Call it with the folder locked, as another machine's processes
// cannot be seen. Returns how many files were removed.
int64_t remove_stale_temporaries(const std::string& folder);

// Throws unless a file can be made in `folder`. It tries by making one and removing it.
void check_writable(const std::string& folder);

// Locks the file `folder`/.lock, so that two processes cannot train in one folder. The system unlocks it when the
// process ends, however it ends; the empty file stays.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& folder);
  // False if the file system has no locks; tell the user once.
  [[nodiscard]] bool held() const { return held_; }
  // Whether the locked file is still the one at its path.
  [[nodiscard]] bool in_place() const { return is_file_at(file_, path_); }

 private:
  std::string path_;
  Descriptor file_;
  bool held_ = false;
};

// If standard input, output or error is closed, opens something there that fails when used. Otherwise the next file
// opened would get that number, and what is printed would land in it. For the start of main.
void occupy_standard_descriptors();

}  // namespace tril
