// TRIL_CLONES compiles a function for AVX-512, for AVX2 and for the baseline, and picks one when the program loads. It
// goes on serial loops over a range, never on a function with an OpenMP region. What such a function calls must be
// inlined into it.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TRIL_SANITIZE)
#define TRIL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIL_CLONES
#endif

#define TRIL_INLINE [[gnu::always_inline]] inline

// Before a loop whose passes do not depend on each other, which the compiler cannot see.
#if defined(__clang__)
#define TRIL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TRIL_INDEPENDENT _Pragma("GCC ivdep")
#endif
