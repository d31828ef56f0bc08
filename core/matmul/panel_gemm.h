// The driver of products between packed panels (core/matmul/split_gemm.h, core/matmul/bf16_gemm.h): which rows and
// which part of the inner axis a task takes, what is packed when, and how blocks begin and end. A Unit says how
// operands are packed and how a block is multiplied:
//   Operand, Packed         the numbers of A and B, and of their panels
//   kStepSize               how many Packed a step of a panel has (16 rows or columns, 32 inner numbers)
//   kInner, kMostRows       how much of A a task packs at a time: little enough to stay in cache
//   kTasks                  how many tasks each thread gets at least, if there are enough rows
//   kPackedAtOnce           how many steps of B are worth waking another thread for
//   kInPlace                A is read in place if it has whole tiles
//   kMisfits                pack_step returns whether numbers can be packed; blocks that cannot are left to oneDNN
//   kHalves                 a transposed A with a long inner axis is multiplied by halves
//   Ready                   what a thread makes before it multiplies, such as a MatrixUnit
//   worth_a_team(shape)     whether several threads are faster
//   group(shape, threads)   how much of the inner axis of B is packed at a time
//   pack_step<kOfB>, multiply<kRows, kColumns>, and store for a C that is not f32
#pragma once

#include "core/machine/matrix_unit.h"

#if defined(__x86_64__) && defined(__linux__)
#include <algorithm>
#include <atomic>

#include "core/machine/onednn.h"
#include "core/machine/parallel.h"
#include "core/matmul/gemm.h"
#include "core/matmul/tile_block.h"

namespace tril {

// Panels of one operand, in memory: bytes between the rows of a tile, between steps, and between panels.
struct Panels {
  const char* data;
  int64_t row, step, panel;
};

// The block of C that comes after the one that is multiplied, to be prefetched, and bytes between its rows.
struct NextBlock {
  const char* data;
  int64_t row;
};

template <class Unit, class Out>
class PanelGemm {
  using Operand = typename Unit::Operand;
  using Packed = typename Unit::Packed;

 public:
  PanelGemm(const MatmulShape& shape, const Operand* a, const Operand* b, Out* c, const float* bias)
      : s_(shape), a_(a), b_(b), c_(c), bias_(bias) {}

  void run(Context& context) {
    const int threads = Unit::worth_a_team(s_) ? context.threads() : 1;
    const int64_t group = std::min(s_.k, Unit::template group<Out>(s_, threads)), tasks = Unit::kTasks * threads;
    const int64_t rows = std::clamp((s_.m / tasks + kBlock - 1) / kBlock * kBlock, kBlock, Unit::kMostRows);
    Scratch scratch(context.scratch());
    packed_ = scratch.get<Packed>(panels(s_.n) * steps(group) * Unit::kStepSize);
    if constexpr (Unit::kMisfits) b_fits_ = scratch.get<bool>(pieces(group));
    for (group_ = 0; group_ < s_.k; group_ += group) {
      const int64_t inner = std::min(group, s_.k - group_);
      pack_b(threads, inner);
      if (Unit::kHalves && std::is_same_v<Out, float> && s_.transpose_a && s_.k >= kLongInner && s_.k == group &&
          s_.m >= 2 * kBlock)
        return multiply_by_halves(context, threads, rows);
      parallel_tasks(threads, (s_.m + rows - 1) / rows, [&](int64_t task, int thread) {
        Scratch own(context.scratch(thread));
        multiply_rows(own, {task * rows, std::min(rows, s_.m - task * rows), group_, inner, group_ == 0});
      });
    }
  }

 private:
  static constexpr int64_t kSide = 16, kStep = 32;  // rows or columns of a tile; inner numbers of a step
  static constexpr int64_t kBlock = 2 * kSide, kLongInner = 256;
  static_assert(Unit::kMostRows / kBlock <= 32);  // pack_a returns a bit for each block

  struct Part {  // of the product: rows of C and numbers of the inner axis
    int64_t row, rows, k, inner;
    bool first;  // no earlier part wrote these rows of C
  };
  struct Range {
    int64_t begin, end;
  };

  [[nodiscard]] static constexpr int64_t steps(int64_t inner) { return (inner + kStep - 1) / kStep; }
  [[nodiscard]] static constexpr int64_t panels(int64_t side) { return (side + kSide - 1) / kSide; }
  [[nodiscard]] static constexpr int64_t pieces(int64_t inner) { return (inner + Unit::kInner - 1) / Unit::kInner; }

  // For the gradient of a weight, whose inner axis is the rows of the batch: a thread takes the half of them that it
  // made, which its cache holds, first for one half of the rows of C, then for the other (as in core/matmul/gemm.cpp).
  void multiply_by_halves(Context& context, int threads, int64_t rows) const {
    const int64_t middle_row = s_.m / kBlock / 2 * kBlock, middle = steps(s_.k) / 2 * kStep;
    const Range of_rows[] = {{0, middle_row}, {middle_row, s_.m}}, of_inner[] = {{0, middle}, {middle, s_.k}};
    const auto tasks = [&](const Range& range) { return (range.end - range.begin + rows - 1) / rows; };
    for (const size_t pass : {size_t{0}, size_t{1}})
      parallel_tasks(threads, tasks(of_rows[0]) + tasks(of_rows[1]), [&](int64_t task, int thread) {
        Scratch own(context.scratch(thread));
        const int64_t front = tasks(of_rows[pass]);
        const size_t half = task < front ? 0 : 1;
        const Range range = of_rows[half ^ pass], inner = of_inner[half];
        const int64_t row = range.begin + (half == 0 ? task : task - front) * rows;
        multiply_rows(own, {row, std::min(rows, range.end - row), inner.begin, inner.end - inner.begin, pass == 0});
      });
  }

  // Packs the group's part of B, step by step in the order that they lie in memory.
  void pack_b(int threads, int64_t inner) {
    panel_b_ = steps(inner) * Unit::kStepSize;
    if constexpr (Unit::kMisfits) std::fill_n(b_fits_, pieces(inner), true);
    parallel_for(threads, panels(s_.n) * steps(inner), Unit::kPackedAtOnce, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = s_.transpose_b ? i / steps(inner) : i % panels(s_.n),
                      step = s_.transpose_b ? i % steps(inner) : i / panels(s_.n);
        const int64_t column = panel * kSide, at = step * kStep, k = group_ + at;
        const Operand* const from = s_.transpose_b ? b_ + column * s_.ldb + k : b_ + k * s_.ldb + column;
        const bool fits = Unit::template pack_step<true>(from, s_.ldb, s_.transpose_b, std::min(kSide, s_.n - column),
                                                         std::min(kStep, inner - at),
                                                         packed_ + panel * panel_b_ + step * Unit::kStepSize);
        if (Unit::kMisfits && !fits)
          std::atomic_ref(b_fits_[at / Unit::kInner]).store(false, std::memory_order_relaxed);
      }
    });
  }

  [[nodiscard]] const Operand* a_at(int64_t row, int64_t k) const {
    return s_.transpose_a ? a_ + k * s_.lda + row : a_ + row * s_.lda + k;
  }

  // Packs a part of A. Returns a bit for each block of rows, set if its numbers cannot be packed (Unit::kMisfits).
  [[nodiscard]] uint32_t pack_a(const Part& part, Packed* a) const {
    const int64_t all_steps = steps(part.inner), all_panels = panels(part.rows);
    uint32_t misfits = 0;
    for (int64_t i = 0; i < all_panels * all_steps; ++i) {
      const int64_t panel = s_.transpose_a ? i % all_panels : i / all_steps,
                    step = s_.transpose_a ? i / all_panels : i % all_steps;
      const int64_t row = panel * kSide, at = step * kStep;
      const bool fits = Unit::template pack_step<false>(
          a_at(part.row + row, part.k + at), s_.lda, !s_.transpose_a, std::min(kSide, part.rows - row),
          std::min(kStep, part.inner - at), a + (panel * all_steps + step) * Unit::kStepSize);
      misfits |= uint32_t{!fits} << (row / kBlock);
    }
    return misfits;
  }

  // C's rows = [C's rows +] A's rows, from part.k on, times what is packed of B.
  void multiply_rows(Scratch& scratch, const Part& part) const {
    constexpr int64_t kBytes = Unit::kStepSize * static_cast<int64_t>(sizeof(Packed));
    const int64_t lda = s_.lda * static_cast<int64_t>(sizeof(Operand));
    const bool in_place = Unit::kInPlace && !s_.transpose_a && part.rows % kSide == 0 && part.inner % kStep == 0;
    Packed* const packed =
        in_place ? nullptr
                 : scratch.get<Packed>(panels(part.rows) * steps(std::min(Unit::kInner, part.inner)) * Unit::kStepSize);
    const typename Unit::Ready ready;
    for (int64_t done = 0; done < part.inner; done += Unit::kInner) {
      const Part piece{part.row, part.rows, part.k + done, std::min(Unit::kInner, part.inner - done),
                       part.first && done == 0};
      Panels a{reinterpret_cast<const char*>(packed), 64, kBytes, steps(piece.inner) * kBytes};
      if (in_place) a = {reinterpret_cast<const char*>(a_at(piece.row, piece.k)), lda, kStep * 2, kSide * lda};
      uint32_t misfits = 0;
      if (Unit::kMisfits && !b_fits_[(piece.k - group_) / Unit::kInner])
        misfits = ~uint32_t{0};
      else if (!in_place)
        misfits = pack_a(piece, packed);
      if (misfits != ~uint32_t{0}) multiply_piece(a, piece, misfits);
      // Blocks of kBlock rows are the same however rows are shared between threads, and so their sums are, too.
      if constexpr (Unit::kMisfits)
        for (int64_t row = 0; misfits != 0 && row < piece.rows; row += kBlock)
          if ((misfits >> (row / kBlock) & 1u) != 0)
            multiply_elsewhere(
                {piece.row + row, std::min(kBlock, piece.rows - row), piece.k, piece.inner, piece.first});
    }
  }

  void multiply_piece(const Panels& a, const Part& piece, uint32_t misfits) const {
    constexpr int64_t kBytes = Unit::kStepSize * static_cast<int64_t>(sizeof(Packed));
    const int64_t panel_b = panel_b_ * static_cast<int64_t>(sizeof(Packed));
    const char* const packed = reinterpret_cast<const char*>(packed_) + (piece.k - group_) / kStep * kBytes;
    for (int64_t column = 0; column < s_.n; column += kBlock) {
      const Panels b{packed + column / kSide * panel_b, 64, kBytes, panel_b};
      for (int64_t row = 0; row < piece.rows; row += kBlock) {
        if ((misfits >> (row / kBlock) & 1u) != 0) continue;
        const bool last = row + kBlock >= piece.rows;
        const Out* const next =
            c_ + (piece.row + (last ? 0 : row + kBlock)) * s_.ldc + (last ? column + kBlock : column);
        multiply_block({a.data + row / kSide * a.panel, a.row, a.step, a.panel}, b, piece, row, column,
                       {reinterpret_cast<const char*>(next), s_.ldc * static_cast<int64_t>(sizeof(Out))});
      }
    }
  }

  void multiply_block(const Panels& a, const Panels& b, const Part& piece, int64_t row, int64_t column,
                      const NextBlock& next) const {
    const int64_t rows = std::min(kBlock, piece.rows - row), columns = std::min(kBlock, s_.n - column);
    Out* const c = c_ + (piece.row + row) * s_.ldc + column;
    const bool adds = s_.accumulate || !piece.first, biased = bias_ != nullptr && piece.first;
    const bool tall = rows > kSide, wide = columns > kSide;
    const auto run = tall   ? wide ? Unit::template multiply<2, 2> : Unit::template multiply<2, 1>
                       : wide ? Unit::template multiply<1, 2>
                            : Unit::template multiply<1, 1>;
    const int64_t count = steps(piece.inner);
    const bool whole = rows % kSide == 0 && columns % kSide == 0;
    if constexpr (std::is_same_v<Out, float>)
      if (whole && !(adds && biased))
        return run(a, b, count,
                   {adds     ? c
                    : biased ? bias_ + column
                             : nullptr,
                    adds ? s_.ldc * 4 : 0, c, s_.ldc * 4},
                   next);
    alignas(64) float sums[kBlock * kBlock], start[kBlock];
    if (biased) {
      std::fill(start, start + kBlock, 0.0f);
      std::copy_n(bias_ + column, columns, start);
    }
    run(a, b, count, {biased ? start : nullptr, 0, sums, kBlock * 4}, next);
    if constexpr (std::is_same_v<Out, float>)
      store(sums, rows, columns, adds, c);
    else
      Unit::store(sums, rows, columns, adds, c, s_.ldc);
  }

  TRIL_AVX512 void store(const float* sums, int64_t rows, int64_t columns, bool add, float* c) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) c[i * s_.ldc + j] = sums[i * kBlock + j] + (add ? c[i * s_.ldc + j] : 0.0f);
  }

  void multiply_elsewhere(const Part& part) const {
    const bool adds = s_.accumulate || !part.first, biased = bias_ != nullptr && part.first;
    float* const c = c_ + part.row * s_.ldc;
    if (biased)
      for (int64_t i = 0; i < part.rows; ++i)
        for (int64_t j = 0; j < s_.n; ++j) c[i * s_.ldc + j] = (adds ? c[i * s_.ldc + j] : 0.0f) + bias_[j];
    onednn_sgemm(s_.transpose_a, s_.transpose_b, part.rows, s_.n, part.inner, 1.0f, a_at(part.row, part.k), s_.lda,
                 s_.transpose_b ? b_ + part.k : b_ + part.k * s_.ldb, s_.ldb, adds || biased ? 1.0f : 0.0f, c, s_.ldc);
  }

  const MatmulShape& s_;
  const Operand *a_, *b_;
  Out* c_;
  const float* bias_;
  int64_t group_ = 0;         // where the packed part of the inner axis begins
  Packed* packed_ = nullptr;  // B's panels
  int64_t panel_b_ = 0;       // Packed numbers between B's panels
  bool* b_fits_ = nullptr;    // for each piece of kInner: B could be packed
};

}  // namespace tril
#endif
