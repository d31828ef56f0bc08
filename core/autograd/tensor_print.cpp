// How a tensor is written: as NumPy and PyTorch do it, after its type and shape.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/autograd/tape.h"

namespace tril {
namespace {

constexpr int64_t kShownWhole = 1000;  // values; if there are more, kEdge at both ends of each axis are shown
constexpr int64_t kEdge = 3;
constexpr size_t kLineWidth = 80;

double value_at(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype) {
    case DType::f32: return static_cast<double>(tensor.ptr<float>()[i]);
    case DType::f64: return tensor.ptr<double>()[i];
    case DType::bf16: return static_cast<double>(tensor.ptr<bf16>()[i]);
    case DType::i32: return static_cast<double>(tensor.ptr<int32_t>()[i]);
  }
  return 0;
}

class Printer {
 public:
  Printer(const Tensor& tensor, std::string& out) : tensor_(tensor), shape_(tensor.shape), out_(out) {
    abridged_ = tensor.count() > kShownWhole;
  }

  // `indent`: the column at which the values begin.
  void print(size_t indent) {
    indent_ = indent;
    visit(0, 0, [&](int64_t i) { look_at(value_at(tensor_, i)); });
    choose_form();
    visit(0, 0, [&](int64_t i) { width_ = std::max(width_, text_of(value_at(tensor_, i)).size()); });
    write(0, 0);
  }

 private:
  enum class Form : uint8_t { integer, whole, decimals, scientific };

  [[nodiscard]] bool cuts(int axis) const { return abridged_ && shape_[axis] > 2 * kEdge; }
  [[nodiscard]] int64_t stride(int axis) const { return shape_.count(axis + 1, shape_.rank()); }

  // Calls body(place) for every value that is shown.
  template <class Body>
  void visit(int axis, int64_t at, Body&& body) const {
    if (axis == shape_.rank()) return body(at);
    for (int64_t i = 0; i < shape_[axis]; ++i) {
      if (cuts(axis) && i == kEdge) i = shape_[axis] - kEdge;
      visit(axis + 1, at + i * stride(axis), body);
    }
  }

  void look_at(double value) {
    if (!std::isfinite(value) || value == 0) return;
    const double size = std::abs(value);
    largest_ = std::max(largest_, size);
    smallest_ = smallest_ == 0 ? size : std::min(smallest_, size);
    all_whole_ &= value == std::floor(value);
  }

  void choose_form() {
    constexpr double kLarge = 1e8, kSmall = 1e-4, kRange = 1000;
    if (tensor_.dtype == DType::i32)
      form_ = Form::integer;
    else if (largest_ >= kLarge || (!all_whole_ && (smallest_ < kSmall || largest_ / smallest_ > kRange)))
      form_ = Form::scientific;
    else
      form_ = all_whole_ ? Form::whole : Form::decimals;
  }

  [[nodiscard]] std::string text_of(double value) const {
    constexpr int kDecimals = 4;
    if (!std::isfinite(value)) return cat(value);
    const bool decimals = form_ == Form::decimals || form_ == Form::scientific;
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, value,
                                   form_ == Form::scientific ? std::chars_format::scientific : std::chars_format::fixed,
                                   decimals ? kDecimals : 0)
                         .ptr;
    return cat(std::string_view(text, static_cast<size_t>(end - text)), form_ == Form::whole ? "." : "");
  }

  void new_line(int axis) {
    out_ += '\n';
    out_.append(indent_ + static_cast<size_t>(axis) + 1, ' ');
  }

  void write(int axis, int64_t at) {
    out_ += '[';
    if (axis + 1 == shape_.rank())
      write_row(axis, at);
    else
      write_parts(axis, at);
    out_ += ']';
  }

  // Writes the values along the last axis; breaks the line where it is full.
  void write_row(int axis, int64_t at) {
    const size_t start = indent_ + static_cast<size_t>(axis) + 1;
    size_t column = start;
    for (int64_t i = 0; i < shape_[axis]; ++i) {
      const bool gap = cuts(axis) && i == kEdge;
      if (gap) i = shape_[axis] - kEdge - 1;
      std::string text = gap ? "..." : text_of(value_at(tensor_, at + i));
      if (!gap) text.insert(0, width_ - text.size(), ' ');
      if (i > 0) {
        out_ += ',';
        if (column + 2 + text.size() + 1 > kLineWidth) {
          new_line(axis);
          column = start;
        } else {
          out_ += ' ';
          column += 2;
        }
      }
      out_ += text;
      column += text.size();
    }
  }

  void write_parts(int axis, int64_t at) {
    for (int64_t i = 0; i < shape_[axis]; ++i) {
      const bool gap = cuts(axis) && i == kEdge;
      if (gap) i = shape_[axis] - kEdge - 1;
      if (i > 0) {
        out_ += ',';
        out_.append(static_cast<size_t>(shape_.rank() - axis - 2), '\n');
        new_line(axis);
      }
      if (gap)
        out_ += "...";
      else
        write(axis + 1, at + i * stride(axis));
    }
  }

  const Tensor& tensor_;
  const Shape& shape_;
  std::string& out_;
  bool abridged_ = false, all_whole_ = true;
  double largest_ = 0, smallest_ = 0;  // magnitudes of the values shown that are finite and not 0
  Form form_ = Form::decimals;
  size_t width_ = 0, indent_ = 0;
};

// Why there are no values to show; null if there are some.
const char* missing(const Tensor& tensor) {
  if (tensor.tape.is_gone()) return ", its tape was destroyed";
  if (!tensor.tape.is_current()) return ", its tape was reset";
  if (tensor.is_on_tape() && tensor.tape->is_discarded(tensor)) return ", discarded";
  return tensor.data == nullptr && tensor.count() > 0 ? ", without values" : nullptr;
}

// The shortest text that reads back to the same number.
void append_scalar(std::string& out, const Tensor& tensor) {
  if (tensor.dtype == DType::f64) return append(out, *tensor.ptr<double>());
  if (tensor.dtype == DType::i32) return append(out, *tensor.ptr<int32_t>());
  append(out, static_cast<float>(value_at(tensor, 0)));
}

}  // namespace

void append(std::string& out, const Tensor& tensor) {
  const std::string head = cat(tensor.dtype, " ", tensor.shape);
  out += head;
  if (const char* const why = missing(tensor)) {
    out += why;
    return;
  }
  const int rank = tensor.shape.rank();
  out += rank < 2 || tensor.count() == 0 ? ' ' : '\n';
  if (tensor.count() == 0)
    out += "[]";
  else if (rank == 0)
    append_scalar(out, tensor);
  else
    Printer(tensor, out).print(rank < 2 ? head.size() + 1 : 0);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << cat(tensor); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << cat(shape); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace tril
