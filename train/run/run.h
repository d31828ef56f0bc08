// A training run in its folder: steps, evaluations, checkpoints, and what is said about them. For the main thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "train/base/log.h"
#include "train/data/dataset.h"
#include "train/run/checkpoint.h"
#include "train/run/report.h"
#include "train/run/run_folder.h"
#include "train/run/thread_choice.h"
#include "train/run/trainer.h"

namespace tril {

class Run {
 public:
  struct Parts {  // all outlive the run
    Context& context;
    Model& model;
    const Dataset& data;
    RunFolder& folder;
    Log& log;
  };
  struct Options {
    std::optional<double> best_possible;  // loss of any model on this text
    std::function<bool()> stopped;        // looked at between micro-batches, evaluation passes and sampled tokens
    std::function<void()> begun = {};     // called by begin and resume once nothing is refused any more
  };
  Run(const Parts& parts, Options options);

  // Before the first step: of a new run, stores its beginning; of one to resume, restores the optimizer. What flags
  // have changed is stored once a step has worked with it.
  void begin();
  void resume(bool changed);

  // True: all steps are done. False: stopped, and saved. Throws where the last save failed, NonFiniteError, or what
  // else went wrong, after saving the steps done.
  [[nodiscard]] bool train();

 private:
  [[nodiscard]] bool go_on();
  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool evaluation_is_missing() const;
  [[nodiscard]] bool evaluate_and_save();
  void remember_save();
  void store_config();
  void choose_threads(double step_seconds);
  void keep_changes();
  [[nodiscard]] LossRule rule() const;
  void recall_best();
  void take_over_best(const std::string& path);
  [[nodiscard]] bool measure_best_again();
  [[nodiscard]] std::optional<std::string> sample() const;
  bool keep_if_best();
  void save_last();
  void save_what_is_learned() noexcept;
  bool restore_folder();
  bool attempt(const std::string& what, const std::function<void()>& save);

  Parts parts_;
  Options options_;
  Trainer trainer_;
  std::optional<ThreadChoice> thread_choice_;  // where the number is to be found
  int said_threads_;
  std::chrono::steady_clock::time_point say_threads_;  // when a change may be said again
  Report report_;
  std::optional<Model> other_best_;  // the best, measured by another rule than holds now
  int64_t saved_step_ = -1;          // that last.safetensors holds,
  Descriptor checkpoint_;            // which is this file
  bool changed_ = false;             // since then, by flags
  std::string failure_;              // of the latest attempt to save; empty: it worked
  std::string in_the_way_;           // why nothing can be saved in the folder's place; empty: nothing is
};

}  // namespace tril
