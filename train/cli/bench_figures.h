// What tril bench measures. Call it on the main thread, with nothing else running.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/profile.h"
#include "train/data/dataset.h"
#include "train/model/model_file.h"

namespace tril::cli {

struct BenchFigures {
  // Of the training step; seconds are medians.
  double step_s = 0, least_step_s = 0;
  double chars_per_s = 0, gflops = 0;  // counting the causal half of attention
  int64_t allocations = 0;             // of ours, in one step after warm-up
  std::vector<OpTime> ops;             // longest first; of one step
  int64_t peak_rss_mib = 0;

  double decoded_chars_per_s = 0;  // one stream, within the context
  int64_t streams = 0;             // decoded together: 64 if memory allows
  double together_chars_per_s = 0;

  // Of the machine, measured in this process.
  double peak_gflops = 0;    // the best of three large matrix products
  double read_gb_per_s = 0;  // all threads reading an array of 128 MiB
  [[nodiscard]] double share_of_peak() const { return gflops / peak_gflops; }
  [[nodiscard]] double floor_s() const { return step_s * share_of_peak(); }  // the step's products at the peak
};

[[nodiscard]] BenchFigures measure(Context& context, Model& model, const Dataset& data);

}  // namespace tril::cli
