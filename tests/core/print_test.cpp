// How tensors are written: for streams, and for cat().
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>

#include "core/ops.h"
#include "nn/layers.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  CHECK(out.str() == cat(value));
  return out.str();
}

struct Printing {
  Context context{{.threads = 1}};
  Tape tape{context};
  template <class T>
  [[nodiscard]] std::string of(const Shape& shape, const std::vector<T>& values) {
    return printed(tape.constant<T>(shape, values));
  }
};

std::vector<double> counted(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i));
  return values;
}

}  // namespace

TEST_CASE("print: type, shape and values, aligned") {
  Printing print;
  CHECK(print.of<double>({3}, {1, 2, 3}) == "f64 (3) [1., 2., 3.]");
  CHECK(print.of<float>({3}, {0.5f, -1.25f, 12.0f}) == "f32 (3) [ 0.5000, -1.2500, 12.0000]");
  CHECK(print.of<int32_t>({2, 2}, {1, -2, 30, 4}) == "i32 (2, 2)\n[[ 1, -2],\n [30,  4]]");
  CHECK(print.of<bf16>({2}, {bf16(1.5f), bf16(-3.0f)}) == "bf16 (2) [ 1.5000, -3.0000]");
  CHECK(print.of<double>({2, 3}, {0.1, 0.2, 0.3, 1, 2, 3}) ==
        "f64 (2, 3)\n[[0.1000, 0.2000, 0.3000],\n [1.0000, 2.0000, 3.0000]]");
  CHECK(print.of<double>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}) ==
        "f64 (2, 2, 2)\n[[[1., 2.],\n  [3., 4.]],\n\n [[5., 6.],\n  [7., 8.]]]");
}

TEST_CASE("print: scalars in full, one value, and nothing at all") {
  Printing print;
  CHECK(print.of<float>({}, {0.1f}) == "f32 () 0.1");
  CHECK(print.of<double>({}, {1.0 / 3}) == "f64 () 0.3333333333333333");
  CHECK(print.of<int32_t>({}, {7}) == "i32 () 7");
  CHECK(print.of<bf16>({}, {bf16(0.1f)}) == "bf16 () 0.100097656");
  CHECK(print.of<double>({1}, {0.0}) == "f64 (1) [0.]");
  CHECK(print.of<double>({1, 1, 1, 1, 1, 1}, {2.0}) == "f64 (1, 1, 1, 1, 1, 1)\n[[[[[[2.]]]]]]");
  CHECK(print.of<float>({0}, {}) == "f32 (0) []");
  CHECK(print.of<float>({2, 0, 3}, {}) == "f32 (2, 0, 3) []");
}

TEST_CASE("print: NaN and infinities are shown, and do not choose the form of the others") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  Printing print;
  CHECK(print.of<double>({4}, {1, kNan, -kInfinity, kInfinity}) == "f64 (4) [  1.,  nan, -inf,  inf]");
  CHECK(print.of<double>({2}, {kNan, 0.25}) == "f64 (2) [   nan, 0.2500]");
  CHECK(print.of<double>({2}, {kNan, kNan}) == "f64 (2) [nan, nan]");
  CHECK(print.of<float>({}, {std::numeric_limits<float>::infinity()}) == "f32 () inf");
  CHECK(print.of<double>({}, {-kNan}) == "f64 () nan");
}

TEST_CASE("print: very large, very small and far apart numbers are written with exponents") {
  Printing print;
  CHECK(print.of<double>({2}, {1e-5, 1.0}) == "f64 (2) [1.0000e-05, 1.0000e+00]");
  CHECK(print.of<double>({2}, {0.5, 2000.0}) == "f64 (2) [5.0000e-01, 2.0000e+03]");
  CHECK(print.of<double>({2}, {1.0, 2000.0}) == "f64 (2) [   1., 2000.]");
  CHECK(print.of<double>({2}, {1.0, 1e300}) == "f64 (2) [ 1.0000e+00, 1.0000e+300]");
  CHECK(print.of<double>({2}, {0.0, -3e-308}) == "f64 (2) [  0.0000e+00, -3.0000e-308]");
}

TEST_CASE("print: of more than a thousand values the ends of each axis are shown") {
  Printing print;
  CHECK(print.of<double>({1001}, counted(1001)) == "f64 (1001) [   0.,    1.,    2., ...,  998.,  999., 1000.]");
  CHECK(print.of<double>({50, 40}, counted(2000)) ==
        "f64 (50, 40)\n"
        "[[   0.,    1.,    2., ...,   37.,   38.,   39.],\n"
        " [  40.,   41.,   42., ...,   77.,   78.,   79.],\n"
        " [  80.,   81.,   82., ...,  117.,  118.,  119.],\n"
        " ...,\n"
        " [1880., 1881., 1882., ..., 1917., 1918., 1919.],\n"
        " [1920., 1921., 1922., ..., 1957., 1958., 1959.],\n"
        " [1960., 1961., 1962., ..., 1997., 1998., 1999.]]");
  CHECK(print.of<double>({2, 501}, counted(1002)) ==
        "f64 (2, 501)\n[[   0.,    1.,    2., ...,  498.,  499.,  500.],\n [ 501.,  502.,  503., ...,  999., 1000., "
        "1001.]]");
  const std::string deep = print.of<double>({7, 7, 7, 7}, counted(7 * 7 * 7 * 7));
  CHECK(std::count(deep.begin(), deep.end(), '.') == 6 * 6 * 6 * 6 + 3 * (6 * 6 * 6 + 6 * 6 + 6 + 1));
  CHECK(deep.find("2400.]]]]") != std::string::npos);
}

TEST_CASE("print: long rows are broken at 80 columns") {
  Printing print;
  for (const Shape& shape : {Shape{1000}, Shape{2, 500}, Shape{2, 2, 250}}) {
    const std::string text = print.of<double>(shape, counted(1000));
    INFO(text);
    std::istringstream lines(text);
    size_t longest = 0;
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    CHECK(longest <= 80);
    CHECK(longest > 70);
    CHECK(std::count(text.begin(), text.end(), '.') == 1000);
  }
}

TEST_CASE("print: what has no values any more, or none yet, says so") {
  Context context({.threads = 1});
  std::optional<Tape> tape(std::in_place, context);
  const Tensor x = tape->variable<float>({2}, {1.0f, 2.0f});
  const Tensor middle = exp(x), loss = sum(middle);
  tape->discard(middle);
  CHECK(printed(middle) == "f32 (2), discarded");
  tape->backward(loss);
  const Tensor gradient = tape->gradient(x);
  CHECK(printed(gradient) == "f32 (2) [2.7183, 7.3891]");
  tape->reset();
  CHECK(printed(x) == "f32 (2), its tape was reset");
  CHECK(printed(gradient) == "f32 (2), its tape was reset");
  tape.emplace(context);
  CHECK(printed(x) == "f32 (2), its tape was destroyed");
  tape.reset();
  CHECK(printed(loss) == "f32 (), its tape was destroyed");
  CHECK(printed(Tensor{}) == "f32 (), without values");
}

TEST_CASE("print: parameters, shapes and types") {
  ParamStore store;
  const Linear layer(Scope(store) / "layer", 2, 1);
  CHECK_THROWS_WITH(cat(layer.weight), contains("parameter layer.weight: expected values"));
  CHECK(printed(layer.weight.info().value) == "f32 (1, 2), without values");
  store.freeze();
  std::ostringstream out;
  out << layer.bias;
  CHECK(out.str() == "f32 (1) [0.]");
  CHECK(printed(Shape{2, 3}) == "(2, 3)");
  CHECK(printed(Shape{}) == "()");
  CHECK(printed(DType::bf16) == "bf16");
}
