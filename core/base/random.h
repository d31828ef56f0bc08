// Counter-based random numbers: a value is a pure function of (seed, step, stream, sample, index), so nothing about
// randomness is ever saved, and the same numbers come back in backward, on resume, and however a batch is cut.
// Philox4x32 with 7 rounds: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11 (7 rounds pass
// BigCrush).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace tril {

struct RandomKey {
  uint64_t seed = 0;
  uint32_t step = 0;    // training step
  uint32_t stream = 0;  // what the numbers are for: an op's place on the tape, a parameter's name, the batches
};

[[gnu::always_inline]] inline void philox(uint32_t counter[4], uint64_t seed) {
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 7; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0], product1 = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t c1 = counter[1], c3 = counter[3];
    counter[0] = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    counter[1] = static_cast<uint32_t>(product1);
    counter[2] = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    counter[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// Sixteen counters at a time give a block of 64 words: word w of lane l is element 16 w + l. Kernels ask for whole
// blocks. Counters have 32 bits; the bits of a block's number beyond those go into the key.
inline constexpr int64_t kRandomBlock = 64;

[[gnu::always_inline]] inline void random_block(const RandomKey& key, uint32_t sample, int64_t block, uint32_t* out) {
  constexpr int kBitsOfBlock = 28;
  const uint64_t seed = key.seed + (static_cast<uint64_t>(block) >> kBitsOfBlock) * 0x9E3779B97F4A7C15u;
  uint32_t word0[16], word1[16], word2[16], word3[16];
  for (int lane = 0; lane < 16; ++lane) {
    uint32_t counter[4] = {static_cast<uint32_t>(block) * 16u + static_cast<uint32_t>(lane), sample, key.step,
                           key.stream};
    philox(counter, seed);
    word0[lane] = counter[0];
    word1[lane] = counter[1];
    word2[lane] = counter[2];
    word3[lane] = counter[3];
  }
  for (int lane = 0; lane < 16; ++lane) {
    out[lane] = word0[lane];
    out[16 + lane] = word1[lane];
    out[32 + lane] = word2[lane];
    out[48 + lane] = word3[lane];
  }
}

// Four words for one index, for callers that want single values, not blocks.
[[nodiscard]] inline std::array<uint32_t, 4> random_words(const RandomKey& key, uint32_t sample, uint32_t index) {
  uint32_t counter[4] = {index, sample, key.step, key.stream};
  philox(counter, key.seed);
  return {counter[0], counter[1], counter[2], counter[3]};
}

// Uniform in [0, 1) with 53 bits.
[[nodiscard]] inline double random_uniform(const RandomKey& key, uint32_t sample, uint32_t index) {
  const auto words = random_words(key, sample, index);
  return static_cast<double>((uint64_t{words[0]} << 21) ^ (words[1] >> 11)) * 0x1p-53;
}

// Standard normal, by Box and Muller.
[[nodiscard]] inline double random_normal(const RandomKey& key, uint32_t sample, uint32_t index) {
  const auto words = random_words(key, sample, index);
  const double radius = (static_cast<double>(words[0]) + 1.0) * 0x1p-32,
               angle = static_cast<double>(words[1]) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * angle);
}

// A stream number from a name (FNV-1a), so that a parameter's initial values depend on its name and not on the order in
// which parameters are made.
[[nodiscard]] constexpr uint32_t stream_of(const char* name, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<unsigned char>(name[i])) * 16777619u;
  return hash;
}

}  // namespace tril
