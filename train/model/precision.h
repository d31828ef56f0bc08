// The type of a run's matrix products, chosen from what the user asked for and what the processor can do.
#pragma once

#include <string>

#include "core/base/dtype.h"
#include "train/model/config.h"

namespace tril {

struct ChosenPrecision {
  DType dtype = DType::f32;
  std::string warning;  // not empty if bf16 was asked for and is slow here
};
[[nodiscard]] ChosenPrecision choose_precision(Precision asked);

}  // namespace tril
