// A kernel is a serial loop over a range. It is compiled three times, for AVX-512, for AVX2 and for the baseline, and
// each call picks the variant that the processor has (core/machine/cpu.h):
//   TRIL_INLINE void add(const float* x, float* y, int64_t n) { for (…) y[i] += x[i]; }
//   …
//   cloned<add>(x, y, n);
// The kernel, and all that it calls, is TRIL_INLINE: what is not inlined into the clone is compiled for the baseline.
// Never clone a function with a parallel region. A kernel calls other kernels directly, without cloned<>.
#pragma once

#include "core/machine/cpu.h"

#define TRIL_INLINE [[gnu::always_inline]] inline

// Stands before a loop whose iterations are independent, which the compiler cannot prove.
#if defined(__clang__)
#define TRIL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TRIL_INDEPENDENT _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
#define TRIL_AVX2 __attribute__((target("avx2,fma")))
#define TRIL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#endif

namespace tril {

template <auto kKernel>
struct Clones;

template <class Result, class... Args, Result (*kKernel)(Args...)>
struct Clones<kKernel> {
#if defined(__x86_64__) && !defined(TRIL_SANITIZE)
  TRIL_AVX512 static Result avx512(Args... args) { return kKernel(static_cast<Args&&>(args)...); }
  TRIL_AVX2 static Result avx2(Args... args) { return kKernel(static_cast<Args&&>(args)...); }
#endif
  static Result baseline(Args... args) { return kKernel(static_cast<Args&&>(args)...); }

  Result operator()(Args... args) const {
#if defined(__x86_64__) && !defined(TRIL_SANITIZE)
    if (cpu_has(CpuLevel::avx512)) return avx512(static_cast<Args&&>(args)...);
    if (cpu_has(CpuLevel::avx2)) return avx2(static_cast<Args&&>(args)...);
#endif
    return baseline(static_cast<Args&&>(args)...);
  }
};

template <auto kKernel>
inline constexpr Clones<kKernel> cloned;

}  // namespace tril
