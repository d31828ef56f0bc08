#include "train/base/file_kind.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "train/base/files.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;
  KnownFile file;
  size_t at = 0;
};

constexpr KnownFile kZip{FileKind::kOther, "a ZIP archive"}, kPyTorch{FileKind::kPyTorch, "a PyTorch file"},
    kModel{FileKind::kSafetensors, "a safetensors file"}, kPlainText{FileKind::kText, "a text"};

constexpr std::array kSignatures = {
    Signature{"GGUF"sv, {FileKind::kOtherModel, "a GGUF model"}},
    Signature{"ggjt"sv, {FileKind::kOtherModel, "a GGML model"}},
    Signature{"lmgg"sv, {FileKind::kOtherModel, "a GGML model"}},
    Signature{"TFL3"sv, {FileKind::kOtherModel, "a TensorFlow Lite model"}, 4},
    Signature{"\x89HDF\r\n\x1a\n"sv, {FileKind::kOtherModel, "an HDF5 file"}},
    Signature{"\x93NUMPY"sv, {FileKind::kOther, "a NumPy array"}},
    // torch.save before it wrote ZIP: a pickle of this magic number.
    Signature{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv, kPyTorch},
    Signature{"\x80\x02"sv, {FileKind::kOther, "a Python pickle"}},
    Signature{"\x80\x03"sv, {FileKind::kOther, "a Python pickle"}},
    Signature{"\x80\x04\x95"sv, {FileKind::kOther, "a Python pickle"}},
    Signature{"\x80\x05\x95"sv, {FileKind::kOther, "a Python pickle"}},
    Signature{"\x89PNG\r\n\x1a\n"sv, {FileKind::kOther, "a PNG image"}},
    Signature{"\xff\xd8\xff"sv, {FileKind::kOther, "a JPEG image"}},
    Signature{"GIF8"sv, {FileKind::kOther, "a GIF image"}},
    Signature{"WEBP"sv, {FileKind::kOther, "a WebP image"}, 8},
    Signature{"%PDF-"sv, {FileKind::kOther, "a PDF document"}},
    Signature{"\x1f\x8b"sv, {FileKind::kOther, "a gzip file"}},
    Signature{"BZh"sv, {FileKind::kOther, "a bzip2 file"}},
    Signature{"\xfd"
              "7zXZ\0"sv,
              {FileKind::kOther, "an xz file"}},
    Signature{"\x28\xb5\x2f\xfd"sv, {FileKind::kOther, "a Zstandard file"}},
    Signature{"7z\xbc\xaf\x27\x1c"sv, {FileKind::kOther, "a 7-Zip archive"}},
    Signature{"ustar"sv, {FileKind::kOther, "a tar archive"}, 257},
    Signature{"\x7f"
              "ELF"sv,
              {FileKind::kOther, "a program"}},
    Signature{"PAR1"sv, {FileKind::kOther, "a Parquet table"}},
    Signature{"SQLite format 3\0"sv, {FileKind::kOther, "an SQLite database"}},
    Signature{"\xff\xfe"sv, {FileKind::kText, "a text in UTF-16"}},
    Signature{"\xfe\xff"sv, {FileKind::kText, "a text in UTF-16"}},
};

// A safetensors file begins with its header's length; the header begins with a brace or white space.
bool is_safetensors(std::string_view beginning) {
  constexpr uint64_t kMostHeader = 100'000'000;
  uint64_t length = 0;
  if (beginning.size() <= sizeof length) return false;
  std::memcpy(&length, beginning.data(), sizeof length);  // little endian, as train/model/safetensors.cpp asserts
  return length > 0 && length <= kMostHeader && " \t\r\n{"sv.find(beginning[sizeof length]) != std::string_view::npos;
}

// torch.save and NumPy write ZIP files; the name of the first entry, after 30 bytes, tells which it is.
KnownFile zip_kind(std::string_view beginning) {
  constexpr size_t kName = 30, kLongest = 300;
  const std::string_view name = beginning.substr(std::min(kName, beginning.size()), kLongest);
  for (const std::string_view entry : {"/data.pkl"sv, "/.format_version"sv, "/byteorder"sv, "/version"sv})
    if (name.find(entry) != std::string_view::npos) return kPyTorch;
  return name.find(".npy"sv) != std::string_view::npos ? KnownFile{FileKind::kOther, "a file of NumPy arrays"} : kZip;
}

// Whether it is valid UTF-8 without control characters that text never contains. The last character may be cut off, as
// only the beginning of the file was read.
bool is_text(std::string_view beginning) {
  for (size_t at = 0; at < beginning.size();) {
    const Utf8Char c = decode_utf8(beginning, at);
    if (c.fault == Utf8Fault::kTruncated) return at > 0;
    const bool control = c.code_point < 0x20 && "\t\n\v\f\r\x1b\x1a\b"sv.find(beginning[at]) == std::string_view::npos;
    if (c.fault != Utf8Fault::kNone || control) return false;
    at += static_cast<size_t>(c.length);
  }
  return true;
}

}  // namespace

KnownFile kind_of(std::string_view beginning) {
  if (beginning.empty()) return {FileKind::kEmpty, "an empty file"};
  if (is_safetensors(beginning)) return kModel;
  for (const std::string_view mark : {"PK\3\4"sv, "PK\5\6"sv})
    if (beginning.starts_with(mark)) return zip_kind(beginning);
  for (const Signature& each : kSignatures)
    if (beginning.size() >= each.at && beginning.substr(each.at).starts_with(each.bytes)) return each.file;
  if (beginning.starts_with("version https://git-lfs.github.com/"))
    return {FileKind::kOther, "a Git LFS pointer, in place of the file (git lfs pull brings it)"};
  for (const std::string_view page : {"<!DOCTYPE html"sv, "<!doctype html"sv, "<html"sv})
    if (beginning.starts_with(page)) return {FileKind::kText, "a web page"};
  if (is_text(beginning)) return kPlainText;
  return {FileKind::kUnknown, "a file of another kind, or a damaged one"};
}

KnownFile read_kind(const std::string& path) {
  InputFile file(path);
  std::string beginning(static_cast<size_t>(std::min(file.size(), kTellingBytes)), '\0');
  file.read(beginning.data(), static_cast<int64_t>(beginning.size()));
  return kind_of(beginning);
}

void check_text(std::string_view bytes, std::string_view where) {
  const KnownFile file = kind_of(bytes.substr(0, static_cast<size_t>(kTellingBytes)));
  if (file.kind == FileKind::kSafetensors || (file.kind != FileKind::kText && file.kind != FileKind::kUnknown &&
                                              file.kind != FileKind::kEmpty && !is_utf8(bytes)))
    fail(where, "UTF-8 text", file.what,
         file.kind == FileKind::kSafetensors ? "to go on with a run: tril train --resume RUN"
                                             : "take the text out of it; --tokens byte trains on bytes as they are");
  check_utf8(bytes, where);
}

std::string read_json_file(const std::string& path, int64_t limit, std::string_view wanted) {
  const KnownFile file = read_kind(path);
  TRIL_CHECK(file.kind == FileKind::kText || file.kind == FileKind::kEmpty, printable(path), wanted, file.what);
  return read_file(path, limit);
}

}  // namespace tril
