// The one door to Catch2, so that tests read the same under its versions 2 and 3.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace tril::test {
using Catch::Approx;
[[nodiscard]] inline auto contains(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
}  // namespace tril::test
#else
#include <catch2/catch.hpp>
namespace tril::test {
using Catch::Detail::Approx;
[[nodiscard]] inline auto contains(const std::string& text) { return Catch::Matchers::Contains(text); }
}  // namespace tril::test
#endif
