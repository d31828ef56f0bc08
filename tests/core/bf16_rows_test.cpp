// Products for a few rows on the matrix unit against a plain double loop.
#include "core/matmul/bf16_rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/machine/cpu.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr int64_t kMostRows = 64;

int64_t whole(int64_t outputs) { return (outputs + 15) / 16 * 16; }

struct Case {
  int64_t outputs, inputs;
  std::vector<float> x, weight, bias;  // x: rows 3 numbers apart
  std::vector<bf16> matrix;

  Case(int64_t outputs_, int64_t inputs_)
      : outputs(outputs_),
        inputs(inputs_),
        x(noise<float>(kMostRows * (inputs + 3), 1)),
        weight(noise<float>(outputs * inputs, 2)),
        bias(noise<float>(whole(outputs), 3)),
        matrix(static_cast<size_t>(bf16_rows::elements(outputs, inputs)) + 32) {
    bf16_rows::pack(weight.data(), inputs, outputs, inputs, matrix.data());
  }

  [[nodiscard]] std::vector<float> product(int64_t rows, bool biased) const {
    const int64_t row_y = whole(outputs) + 16;
    std::vector<float> y(static_cast<size_t>(bf16_rows::rooms(rows) * row_y), std::numeric_limits<float>::quiet_NaN());
    std::vector<bf16> rounded(static_cast<size_t>(bf16_rows::rounded_elements(rows, inputs)));
    const MatrixUnit unit(bf16_rows::rows_of_unit(rows));
    bf16_rows::product(x.data(), inputs + 3, rows, {matrix.data(), inputs, outputs}, biased ? bias.data() : nullptr,
                       y.data(), row_y, rounded.data());
    std::vector<float> out;
    for (int64_t row = 0; row < rows; ++row)
      out.insert(out.end(), y.begin() + row * row_y, y.begin() + row * row_y + outputs);
    return out;
  }

  // The largest error against the f64 product of the rounded operands, relative to the sum of the terms' sizes.
  [[nodiscard]] double error(const std::vector<float>& y, bool biased) const {
    const auto rounded = [](float value) { return static_cast<double>(bf16{value}); };
    double worst = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / outputs, j = static_cast<int64_t>(i) % outputs;
      double sum = biased ? static_cast<double>(bias[static_cast<size_t>(j)]) : 0.0, size = std::fabs(sum);
      for (int64_t k = 0; k < inputs; ++k) {
        const double term = rounded(x[static_cast<size_t>(row * (inputs + 3) + k)]) *
                            rounded(weight[static_cast<size_t>(j * inputs + k)]);
        sum += term;
        size += std::fabs(term);
      }
      const double off = std::fabs(static_cast<double>(y[i]) - sum) / (size + 1e-30);
      worst = off <= worst ? worst : off;  // NaN stays
    }
    return worst;
  }
};

bool skips() {
  if (!cpu_has(CpuLevel::amx)) WARN("no AMX here: not checked");
  return !cpu_has(CpuLevel::amx);
}

}  // namespace

TEST_CASE("bf16_rows: every number of rows, at sizes around the tiles'") {
  if (skips()) return;
  for (const int64_t outputs : {1, 15, 16, 17, 48, 64, 65, 200})
    for (const int64_t inputs : {1, 2, 31, 32, 33, 100}) {
      const Case one(outputs, inputs);
      for (const int64_t rows : {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64})
        for (const bool biased : {false, true}) {
          INFO(cat(rows, " rows, ", inputs, " to ", outputs, biased ? ", bias" : ""));
          REQUIRE(one.error(one.product(rows, biased), biased) <= 1e-6);
        }
    }
}

TEST_CASE("bf16_rows: a row's result does not depend on the others, to the bit") {
  if (skips()) return;
  const Case one(150, 97);
  const std::vector<float> all = one.product(kMostRows, true);
  for (int64_t rows = 1; rows < kMostRows; ++rows) {
    const std::vector<float> some = one.product(rows, true);
    INFO(rows << " rows");
    REQUIRE(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("bf16_rows: parts of a matrix, put in one after the other") {
  if (skips()) return;
  const Case whole_at_once(50, 40);
  Case in_parts = whole_at_once;
  in_parts.matrix.assign(in_parts.matrix.size(), bf16{});
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 7}, {7, 30}, {37, 13}})
    bf16_rows::pack(in_parts.weight.data() + first * 40, 40, count, 40, in_parts.matrix.data(), first);
  CHECK((in_parts.product(5, false) == whole_at_once.product(5, false)));
}
