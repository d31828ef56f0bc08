// What the products of a run are computed in, from what the user asked for and what the processor can do.
#pragma once

#include <string>

#include "core/base/dtype.h"
#include "train/model/config.h"

namespace tril {

struct ChosenPrecision {
  DType dtype = DType::f32;
  std::string warning;  // where bf16 was asked for and is slow here; else empty
};
[[nodiscard]] ChosenPrecision choose_precision(Precision asked);

}  // namespace tril
