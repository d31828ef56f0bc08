// Sums over the rows of a matrix. The rows are cut in a fixed number of chunks whose sums are added in order, so the
// result has the same bits at any number of threads.
#pragma once

#include <algorithm>

#include "core/machine/clones.h"
#include "core/machine/context.h"
#include "core/machine/parallel.h"

namespace tril {

template <class S, class T>
TRIL_INLINE void add_row(const S* row, T* sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<T>(row[i]);
}

// Adds up `chunks` rows of partial sums (chunks, n) into out (n).
template <class T>
void finish_sums(const T* partial, int64_t chunks, int64_t n, T* out, bool accumulate) {
  for (int64_t i = 0; i < n; ++i) {
    T total = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) total += partial[chunk * n + i];
    out[i] = accumulate ? out[i] + total : total;
  }
}

// Calls body(first row, end row, chunk, thread) for the fixed chunks of the rows.
template <class Body>
void for_row_chunks(Context& context, int64_t rows, Body&& body) {
  parallel_for(context.threads(), kReductionChunks, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t chunk = begin; chunk < end; ++chunk)
      body(rows * chunk / kReductionChunks, rows * (chunk + 1) / kReductionChunks, chunk, thread);
  });
}

// out (n) = [out +] the column sums of x (rows, n).
template <class S, class T>
void column_sums(Context& context, const S* x, int64_t rows, int64_t n, T* out, bool accumulate) {
  Scratch scratch(context.scratch());
  T* const partial = scratch.get<T>(kReductionChunks * n);
  for_row_chunks(context, rows, [&](int64_t begin, int64_t end, int64_t chunk, int) {
    T* const sums = partial + chunk * n;
    std::fill(sums, sums + n, T{0});
    for (int64_t row = begin; row < end; ++row) cloned<add_row<S, T>>(x + row * n, sums, n);
  });
  finish_sums(partial, kReductionChunks, n, out, accumulate);
}

}  // namespace tril
