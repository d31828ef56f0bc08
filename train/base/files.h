// Files, the POSIX way: whole and checked, or an error that names the path and the system's reason.
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

// Whether an open file is still the one of this name. While it is open, no other can have its number.
[[nodiscard]] bool is_file_at(const Descriptor& file, const std::string& path);

// The machine's memory in bytes: what no file may be larger than that is to be held whole.
[[nodiscard]] int64_t usable_memory();

// A regular file, read from front to back. Directories, pipes and devices are refused without being opened.
class InputFile {
 public:
  explicit InputFile(std::string path);
  [[nodiscard]] const std::string& path() const { return path_; }
  // As it was when the file was opened.
  [[nodiscard]] int64_t size() const { return size_; }
  // Exactly `count` bytes; a file that ends before was cut short meanwhile, which is an error.
  void read(void* out, int64_t count);
  // All that is left, appended to `out`. A file that grew meanwhile is read to its end, up to `limit` bytes in all.
  void read_rest(std::string& out, int64_t limit);

 private:
  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;
};

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The whole file. Above `limit` bytes, or the machine's memory, it is refused before anything is allocated.
[[nodiscard]] std::string read_file(const std::string& path, int64_t limit = kNoLimit);
// Standard input up to its end.
[[nodiscard]] std::string read_standard_input(int64_t limit = kNoLimit);

// A write that failed. The two cases differ in what the user has now:
// not committed, nothing changed and what was there before is intact; committed, the new file is in place, but the
// system could not promise that it survives a power failure.
class WriteError : public Error {
 public:
  WriteError(const std::string& text, bool committed) : Error(text), committed_(committed) {}
  [[nodiscard]] bool committed() const { return committed_; }

 private:
  bool committed_;
};

// A file that appears whole or not at all: written under a temporary name beside its place, synced, renamed, and the
// folder synced. Until commit() is called, what was at `path` before is untouched; a WriteError of it says what is true
// afterwards; without commit() the temporary goes. A symbolic link at `path` is replaced, not followed.
class AtomicFile {
 public:
  // `bytes_needed`, where known, is told to the user when space runs out.
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

// Removes what AtomicFile left in `folder` when its process was killed: only names of its pattern whose process no
// longer lives. Call it with the folder locked, as another machine's processes cannot be seen. Returns how many went.
int64_t remove_stale_temporaries(const std::string& folder);

// Throws unless a file can be made in `folder`, by making and removing one.
void check_writable(const std::string& folder);

// Holds `folder`/.lock, so that two processes cannot train in one folder. The system lets go when the process ends,
// however it ends; the empty file stays.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& folder);
  // False where the file system knows no locks; the user should hear of it once.
  [[nodiscard]] bool held() const { return held_; }
  // Whether the file that is held is still the one at its path.
  [[nodiscard]] bool in_place() const { return is_file_at(file_, path_); }

 private:
  std::string path_;
  Descriptor file_;
  bool held_ = false;
};

// Where the caller closed standard input, output or error, puts something there that fails when used: otherwise the
// next file opened would take that number, and what is printed would land in it. For the start of main.
void occupy_standard_descriptors();

}  // namespace tril
