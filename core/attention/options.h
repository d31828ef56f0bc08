// What kind of attention it is. One struct, which the op, its kernels and the modules share.
#pragma once

#include <cstdint>
#include <optional>

namespace tril {

struct AttentionOptions {
  int64_t heads = 1;
  // Heads of keys and values, each looked at by heads / kv_heads heads of queries; 0: as many as heads.
  // https://arxiv.org/abs/2305.13245 (grouped queries), https://arxiv.org/abs/1911.02150 (a single one)
  int64_t kv_heads = 0;
  bool causal = false;  // query i sees keys j <= i only: the lower triangle, also where Tq and Tk differ
  // Query i sees only the keys less than so many places away, |i - j| < window; with causal, the last `window` up to
  // its own place. 0: however far. https://arxiv.org/abs/2004.05150
  int64_t window = 0;
  std::optional<double> scale{};  // default 1/sqrt(D), which keeps softmax diffuse; 1 for none
  double dropout = 0.0;           // of the weights

  [[nodiscard]] int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
};

}  // namespace tril
