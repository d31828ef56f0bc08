#include "train/model/precision.h"

#include "core/machine/onednn.h"
#include "core/matmul/bf16_gemm.h"

namespace tril {

ChosenPrecision choose_precision(Precision asked) {
  const bool native = bf16_unit() != Bf16Unit::none;
  if (asked == Precision::kF32 || (asked == Precision::kAuto && !native)) return {DType::f32, {}};
  if (native) return {DType::bf16, {}};
  return {DType::bf16, cat("dtype: bf16 asked for, but this processor (", cpu_isa(),
                           ") has no products of it; they are widened to f32: slower than --dtype f32")};
}

}  // namespace tril
