// The room train/run: training itself: optimizer, schedule, steps, evaluation, and the run that can be resumed.

// A training run in its folder: steps, evaluations, checkpoints, and what is logged about them. For the main thread.
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
    std::function<bool()> stopped;        // asked between micro-batches, evaluation passes and sampled tokens
    std::function<void()> begun = {};     // called by begin and resume once nothing is refused any more
  };
  Run(const Parts& parts, Options options);

  // Call one of the two before train(). begin() saves the first checkpoint of a new run. resume() restores the
  // optimizer of a run that was stopped; `changed` says that flags changed the configuration, which is stored once a
  // step has worked with it.
  void begin();
  void resume(bool changed);

  // Returns true when all steps are done, false when it was stopped; the run is then saved. Throws if the last save
  // failed, if a loss, gradient or weight is not finite (the last checkpoint stays), or for any other error, after
  // saving the steps done.
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
  std::optional<ThreadChoice> thread_choice_;  // if the number of threads is chosen by timing
  int said_threads_;
  std::chrono::steady_clock::time_point say_threads_;  // when a change may be told again
  Report report_;
  std::optional<Model> other_best_;  // the best model, while its loss has to be measured again
  int64_t saved_step_ = -1;          // of the checkpoint in last.safetensors
  Descriptor checkpoint_;            // last.safetensors, kept open
  bool changed_ = false;             // flags changed the configuration, which is not stored yet
  std::string failure_;              // error of the latest attempt to save; empty: it worked
  std::string in_the_way_;           // why nothing can be saved in the folder's place; empty: nothing is
};

}  // namespace tril
