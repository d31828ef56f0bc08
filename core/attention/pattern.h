// Which keys a query may look at. Tokens are nodes of a directed graph; this says where its edges can be.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tril {

struct KeyRange {
  int64_t first = 0, last = 0;  // [first, last)
};

struct AttentionPattern {
  bool causal = false;
  int64_t window = 0;  // 0: none
  int64_t keys = 0;    // that the sample has

  [[nodiscard]] KeyRange seen_by(int64_t query) const {
    const int64_t last = causal ? std::min(query + 1, keys) : window > 0 ? std::min(query + window, keys) : keys;
    return {window > 0 ? std::clamp<int64_t>(query - window + 1, 0, last) : 0, last};
  }
  // By any of `count` queries, which are at least one: both ends only grow from query to query.
  [[nodiscard]] KeyRange seen_by(int64_t query, int64_t count) const {
    return {seen_by(query).first, seen_by(query + count - 1).last};
  }
  // Whether every query sees every key of the sample.
  [[nodiscard]] bool is_full() const { return !causal && window == 0; }
};

}  // namespace tril
