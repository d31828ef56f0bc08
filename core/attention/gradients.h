// Where the gradients of one head's keys and values go, and which of them are there already.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/attention/rows.h"
#include "core/machine/arena.h"

namespace tril {

// Gradients of keys, or of values: a head's rows, `row` apart; data is null where they are not wanted.
template <class S>
struct KeyGradient {
  S* data = nullptr;
  int64_t row = 0;
  bool add = false;  // to what is there
};

// Remembers, for each panel of a head's keys, whether its gradients have been written: the first block of queries that
// comes to a panel writes them, later ones add to them.
class WrittenPanels {
 public:
  WrittenPanels(Scratch& scratch, int64_t keys)
      : keys_(keys), count_(attention_rows::pad(keys) / kPanel), written_(scratch.get<uint8_t>(count_)) {
    std::fill_n(written_, count_, uint8_t{0});
  }

  // Calls run(begin, end, written) for the runs of alike panels that cover the `columns` keys from `begin` on.
  template <class Run>
  void each_run(int64_t begin, int64_t columns, const Run& run) const {
    const int64_t last = std::min((begin + columns) / kPanel, count_);
    for (int64_t panel = begin / kPanel; panel < last;) {
      int64_t end = panel + 1;
      while (end < last && written_[end] == written_[panel]) ++end;
      run(panel * kPanel, std::min(end * kPanel, keys_), written_[panel] != 0);
      panel = end;
    }
  }
  void mark(int64_t begin, int64_t columns) {
    const int64_t first = begin / kPanel, last = std::min((begin + columns) / kPanel, count_);
    std::fill(written_ + first, written_ + last, uint8_t{1});
  }
  // The same for all of the keys.
  template <class Run>
  void each_run(const Run& run) const {
    each_run(0, count_ * kPanel, run);
  }

 private:
  static constexpr int64_t kPanel = attention_rows::kPanel;
  int64_t keys_, count_;
  uint8_t* written_;
};

}  // namespace tril
