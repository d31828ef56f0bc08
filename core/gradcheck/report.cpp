#include "core/gradcheck/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace tril {
namespace gradchecks {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool close(double a, double b, double scale) { return std::fabs(a - b) <= 1e-6 * (std::fabs(b) + 1e-3 * scale); }

std::vector<const ElementCheck*> wrong_elements(const InputCheck& input) {
  std::vector<const ElementCheck*> wrong;
  for (const ElementCheck& check : input.elements)
    if (check.verdict == Verdict::failed) wrong.push_back(&check);
  return wrong;
}

// The numeric gradient by place; NaN where it was not measured.
std::vector<double> numeric_gradient(const InputCheck& input) {
  std::vector<double> values(input.gradient.size(), kUnknown);
  for (const ElementCheck& check : input.elements) values[static_cast<size_t>(check.element)] = check.numeric;
  return values;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::isfinite(value) ? std::max(most, std::fabs(value)) : most;
  return most;
}

// Whether the analytic gradient is the numeric one with its elements moved: at e it has the numeric value of element
// place(e). If place(e) is -1, e is not compared.
template <class Place>
bool is_moved(const InputCheck& input, const std::vector<double>& numeric, Place&& place) {
  const double scale = largest(numeric);
  int64_t agree = 0;
  for (size_t e = 0; e < input.gradient.size(); ++e) {
    const int64_t from = place(static_cast<int64_t>(e));
    if (from < 0 || from >= static_cast<int64_t>(numeric.size()) || std::isnan(numeric[static_cast<size_t>(from)]))
      continue;
    if (!close(input.gradient[e], numeric[static_cast<size_t>(from)], scale)) return false;
    ++agree;
  }
  return agree >= 2;
}

std::string find_transpose(const InputCheck& input, const std::vector<double>& numeric) {
  const Shape& shape = input.shape;
  if (shape.rank() < 2) return {};
  const int64_t rows = shape[-2], columns = shape[-1], size = rows * columns;
  const bool transposed = is_moved(input, numeric, [&](int64_t e) {
    const int64_t in = e % size;  // the gradient lies as (columns, rows)
    return e - in + in % rows * columns + in / rows;
  });
  return transposed ? "the gradient is transposed in its last two axes" : "";
}

std::string find_shift(const InputCheck& input, const std::vector<double>& numeric) {
  const Shape& shape = input.shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int64_t step = shape.count(axis + 1, shape.rank()), extent = shape[axis];
    for (const int64_t by : {1, -1}) {
      const bool shifted = is_moved(input, numeric, [&](int64_t e) {
        const int64_t at = e / step % extent + by;
        return at < 0 || at >= extent ? -1 : e + by * step;
      });
      if (shifted) return cat("the gradient is shifted by one along axis ", axis);
    }
  }
  for (const int64_t by : {1, -1})
    if (is_moved(input, numeric, [&](int64_t e) { return e + by; }))
      return "the gradient is shifted by one element in memory";
  return {};
}

std::string find_swap(const std::vector<InputCheck>& inputs, size_t at) {
  for (size_t other = 0; other < inputs.size(); ++other) {
    if (other == at || inputs[other].gradient.size() != inputs[at].gradient.size()) continue;
    if (is_moved(inputs[at], numeric_gradient(inputs[other]), [](int64_t e) { return e; }))
      return cat("it is the gradient of ", inputs[other].name, ": the two are swapped");
  }
  return {};
}

// The same ratio at every wrong element.
std::string find_factor(const InputCheck& input) {
  const auto wrong = wrong_elements(input);
  if (wrong.size() < 2 && wrong.size() < input.elements.size()) return {};
  const double ratio = wrong[0]->analytic / wrong[0]->numeric;
  for (const ElementCheck* check : wrong)
    if (!close(check->analytic / check->numeric, ratio, 0)) return {};
  if (!std::isfinite(ratio) || ratio == 0) return {};
  if (close(ratio, -1, 0)) return "the sign is flipped";
  return cat("a factor ", number(ratio, 6), " is too much, the same at all wrong elements");
}

// Whether analytic - numeric is the same along each row of the last axis: a mean or a sum over the row is missing, or
// is there by mistake.
bool differs_by_rows(const InputCheck& input) {
  const int64_t row = input.shape.last();
  if (row < 3) return false;
  const std::vector<double> numeric = numeric_gradient(input);
  const double scale = largest(numeric);
  int64_t rows = 0;
  for (size_t first = 0; first < numeric.size(); first += static_cast<size_t>(row)) {
    const double offset = input.gradient[first] - numeric[first];
    for (size_t e = first; e < first + static_cast<size_t>(row); ++e)
      if (!(std::fabs(input.gradient[e] - numeric[e] - offset) <= 1e-6 * scale)) return false;
    ++rows;
  }
  return rows > 0;
}

// Calls body(index on the axis) for each of these elements.
template <class Body>
void along(const Shape& shape, int axis, const std::vector<const ElementCheck*>& elements, Body&& body) {
  const int64_t step = shape.count(axis + 1, shape.rank());
  for (const ElementCheck* check : elements) body(check->element / step % shape[axis]);
}

// "exactly those with index 3 to 4 on axis 1", if such a range holds all wrong elements and no other measured one; else
// empty.
std::string axis_pattern(const InputCheck& input, const std::vector<const ElementCheck*>& wrong) {
  std::vector<const ElementCheck*> all;
  for (const ElementCheck& check : input.elements) all.push_back(&check);
  for (int axis = 0; axis < input.shape.rank(); ++axis) {
    int64_t low = input.shape[axis], high = -1, inside = 0;
    along(input.shape, axis, wrong, [&](int64_t at) {
      low = std::min(low, at);
      high = std::max(high, at);
    });
    along(input.shape, axis, all, [&](int64_t at) { inside += at >= low && at <= high; });
    if (inside != static_cast<int64_t>(wrong.size()) || high - low + 1 == input.shape[axis]) continue;
    return low == high ? cat("exactly those with index ", low, " on axis ", axis)
                       : cat("exactly those with index ", low, " to ", high, " on axis ", axis);
  }
  return {};
}

std::string triangle_pattern(const InputCheck& input, const std::vector<const ElementCheck*>& wrong) {
  if (input.shape.rank() < 2) return {};
  const auto place = [&](const ElementCheck* check) {
    return std::pair(check->element / input.shape[-1] % input.shape[-2], check->element % input.shape[-1]);
  };
  const auto all = [&](auto&& holds) {
    return std::all_of(wrong.begin(), wrong.end(), [&](const ElementCheck* check) {
      const auto [row, column] = place(check);
      return holds(row, column);
    });
  };
  if (all([](int64_t row, int64_t column) { return column == row; })) return "all have column = row";
  if (all([](int64_t row, int64_t column) { return column > row; })) return "all have column > row";
  if (all([](int64_t row, int64_t column) { return column < row; })) return "all have column < row";
  if (all([](int64_t row, int64_t column) { return column <= row; })) return "all have column <= row";
  if (all([](int64_t row, int64_t column) { return column >= row; })) return "all have column >= row";
  return {};
}

}  // namespace

std::string number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, digits).ptr;
  return cat(std::signbit(value) ? "" : "+", std::string_view(text, static_cast<size_t>(end - text)));
}

std::string diagnose(const std::vector<InputCheck>& inputs, size_t at, const Facts& facts) {
  const InputCheck& input = inputs[at];
  const auto wrong = wrong_elements(input);
  const auto is_zero = [](double value) { return value == 0; };
  if (!std::all_of(input.gradient.begin(), input.gradient.end(), [](double g) { return std::isfinite(g); }))
    return "the gradient is not finite";
  if (wrong.empty()) return {};
  if (std::all_of(input.gradient.begin(), input.gradient.end(), is_zero))
    return "the gradient is zero everywhere: a path is missing";
  if (const std::string factor = find_factor(input); !factor.empty()) return factor;
  if (const std::string swap = find_swap(inputs, at); !swap.empty()) return swap;
  const std::vector<double> numeric = numeric_gradient(input);
  if (const std::string transpose = find_transpose(input, numeric); !transpose.empty()) return transpose;
  if (const std::string shift = find_shift(input, numeric); !shift.empty()) return shift;
  if (facts.ignores_cotangent) return "backward does not multiply by the gradient of its output";
  if (std::all_of(wrong.begin(), wrong.end(), [&](const ElementCheck* check) { return is_zero(check->analytic); }))
    return wrong.size() == 1 ? "one element is left out: its gradient is zero"
                             : "elements are left out: the gradient is zero where it is wrong";
  if (differs_by_rows(input)) return "off by the same amount along each row: a sum or mean over it is missing";
  return "neither a factor nor a move of elements: a term is missing or wrong";
}

std::string pattern(const InputCheck& input) {
  const auto wrong = wrong_elements(input);
  if (wrong.size() == input.elements.size()) return "every element";
  if (wrong.size() == 1) return cat("only ", index_text(input.shape, wrong[0]->element));
  if (const std::string axis = axis_pattern(input, wrong); !axis.empty()) return axis;
  if (const std::string triangle = triangle_pattern(input, wrong); !triangle.empty()) return triangle;
  return "no simple pattern";
}

std::string element_report(const std::vector<InputCheck>& inputs, size_t at, const Facts& facts) {
  const InputCheck& input = inputs[at];
  auto wrong = wrong_elements(input);
  if (wrong.empty()) return {};
  std::stable_sort(wrong.begin(), wrong.end(), [](const ElementCheck* a, const ElementCheck* b) {
    return a->relative_error() > b->relative_error();
  });
  const ElementCheck& worst = *wrong.front();
  std::string text = cat("  ", wrong.size(), " of ", input.elements.size(), " elements wrong; worst, relative ",
                         number(worst.relative_error(), 2), ", at ", index_text(input.shape, worst.element), "\n");
  text += describe(worst);
  text += cat("  diagnosis: ", diagnose(inputs, at, facts), "\n");
  text += cat("  wrong elements: ", pattern(input), "\n  worst ", std::min<size_t>(5, wrong.size()), ":");
  for (size_t i = 0; i < wrong.size() && i < 5; ++i)
    text += cat(i > 0 ? "; " : " ", index_text(input.shape, wrong[i]->element), " ", number(wrong[i]->analytic, 3),
                " for ", number(wrong[i]->numeric, 3));
  return text + "\n";
}

}  // namespace gradchecks

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed: return "passed";
    case Verdict::inconclusive: return "inconclusive";
    case Verdict::failed: return "FAILED";
  }
  return "?";
}

const char* name_of(Check check) {
  switch (check) {
    case Check::runs: return "runs";
    case Check::error: return "error";
    case Check::reached: return "reached";
    case Check::written: return "written";
    case Check::gradient: return "gradient";
    case Check::poison: return "poison";
    case Check::unchanged: return "unchanged";
    case Check::repeatable: return "repeatable";
    case Check::threads: return "threads";
    case Check::linear: return "linear";
    case Check::alone: return "alone";
    case Check::accumulate: return "accumulate";
    case Check::f32: return "f32";
    case Check::compose: return "compose";
  }
  return "?";
}

std::string index_text(const Shape& shape, int64_t element) {
  std::string text;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int64_t extent = std::max<int64_t>(1, shape[axis]);
    text = cat(element % extent, text.empty() ? "" : ",", text);
    element /= extent;
  }
  return cat("[", text, "]");
}

std::string describe(const ElementCheck& check) {
  using gradchecks::number;
  std::string text = cat("    analytic   ", number(check.analytic), "\n    numeric   ");
  for (size_t i = 0; i < 3; ++i)
    text += cat(" ", number(check.differences[i]), " (step ", number(check.steps[i], 1), ")");
  text += cat("\n    Richardson ", number(check.numeric, 10), " ± ", number(check.error, 1).substr(1),
              "\n    ratio      ", number(check.analytic / check.numeric, 6), "\n    one-sided  ",
              number(check.left, 4), " / ", number(check.right, 4));
  text += check.jump == 0 ? " -> no kink here\n" : cat(" -> the derivative jumps by ", number(check.jump, 4), "\n");
  return check.reason.empty() ? text : cat(text, "    ", check.reason, "\n");
}

}  // namespace tril
