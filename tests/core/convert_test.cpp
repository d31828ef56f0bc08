// core/kernels/convert.h: rows of f32 rounded to bf16, by the processor's instruction for it or without, against each
// number's own rounding.
#include "core/kernels/convert.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"

using namespace tril;
using namespace tril::test;

namespace {

// Every bf16 that is no denormal, with what lies just below, on and just above the middle to its neighbour.
std::vector<float> around_all() {
  std::vector<float> values;
  for (uint32_t high = 0; high <= 0xffffu; ++high) {
    const uint32_t exponent = high >> 7 & 0xffu;
    if (exponent == 0 && (high & 0x7fu) != 0) continue;
    const bool smallest = exponent == 0;  // below it are denormals
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      if (low == 0 || !smallest) values.push_back(std::bit_cast<float>(high << 16 | low));
  }
  return values;
}

bool same(bf16 a, bf16 b) {
  const float x = static_cast<float>(a), y = static_cast<float>(b);
  return std::isnan(x) || std::isnan(y) ? std::isnan(x) && std::isnan(y) : a.bits == b.bits;
}

}  // namespace

TEST_CASE("convert: rows are rounded to bf16 as each number is by itself") {
  const std::vector<float> values = around_all();
  std::vector<bf16> rounded(values.size());
  convert(values.data(), rounded.data(), static_cast<int64_t>(values.size()));
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) wrong += !same(rounded[i], bf16(values[i]));
  CHECK(wrong == 0);
}

TEST_CASE("convert: any number of numbers, and nothing behind them") {
  const bf16 untouched(42.0f);
  for (size_t count = 0; count <= 100; ++count)
    for (const bool add : {false, true}) {
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = 1.0f + static_cast<float>(i) / 64.0f;
      std::vector<bf16> rounded(count + 40, untouched);
      (add ? convert_and_add<float, bf16> : convert<float, bf16>)(values.data(), rounded.data(),
                                                                  static_cast<int64_t>(count));
      int64_t wrong = 0;
      for (size_t i = 0; i < rounded.size(); ++i)
        wrong += !same(rounded[i], i >= count ? untouched : bf16(values[i] + (add ? 42.0f : 0.0f)));
      INFO(cat(count, add ? " added" : ""));
      CHECK(wrong == 0);
    }
}

TEST_CASE("fill: gives results piece by piece where they must be rounded or added") {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{511}, int64_t{512}, int64_t{513}, int64_t{1300}})
    for (const bool add : {false, true}) {
      const auto value = [](int64_t i) { return static_cast<float>(i % 200); };
      const auto body = [&](int64_t begin, int64_t end, float* out) {
        for (int64_t i = begin; i < end; ++i) out[i - begin] = value(i);
      };
      std::vector<bf16> narrow(static_cast<size_t>(count), bf16(1.0f));
      std::vector<float> wide(static_cast<size_t>(count), 1.0f);
      fill(narrow.data(), count, add, body);
      fill(wide.data(), count, add, body);
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        const float expected = value(i) + (add ? 1.0f : 0.0f);
        wrong += wide[static_cast<size_t>(i)] != expected || !same(narrow[static_cast<size_t>(i)], bf16(expected));
      }
      INFO(cat(count, add ? " added" : ""));
      CHECK(wrong == 0);
    }
}
