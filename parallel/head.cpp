#include "parallel/head.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backend/error.h"
#include "backend/slice_sums.h"
#include "parallel/value_bytes.h"

namespace specdec {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
std::span<std::byte> writable_bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

ParallelHead::ParallelHead(Backend& backend, Communicator& group, const ShardPlan& plan, const LinearSpec& spec)
    : backend_(backend), group_(group), plan_(plan), slices_(plan.vocabulary_slices()), weight_(backend.pack(spec)) {
  check(weight_->out_features() == local_vocabulary(), "ParallelHead: the matrix is not this rank's vocabulary shard");
}

void ParallelHead::forward(ConstRows hidden, Rows logits, Stream stream) {
  backend_.matmul(*weight_, hidden, logits, stream);
}

void ParallelHead::argmax(ConstRows logits, std::span<std::int32_t> out, Stream stream) {
  const auto rows = static_cast<std::size_t>(logits.rows);
  check(out.size() == rows, "ParallelHead::argmax: one result a row");
  my_max_.resize(rows);
  all_max_.resize(rows * group_.size());
  const std::array<Range, 1> whole = {Range{0, local_vocabulary()}};
  backend_.slice_max(logits, whole, my_max_, stream);
  const auto first = static_cast<std::int32_t>(plan_.vocabulary().begin);
  for (SliceMax& mine : my_max_) {
    mine.index += mine.index < 0 ? 0 : first;
  }
  group_.all_gather(bytes_of(my_max_), writable_bytes_of(all_max_), stream);
  for (std::size_t r = 0; r < rows; ++r) {
    SliceMax best{kMinusInfinity, -1};
    // Ranks hold ascending ids, so only a larger value replaces what is there: a tie goes to the lowest id.
    for (std::size_t at = r; at < all_max_.size(); at += rows) {
      if (all_max_[at].index >= 0 && (best.index < 0 || all_max_[at].value > best.value)) {
        best = all_max_[at];
      }
    }
    out[r] = best.index;
  }
}

void ParallelHead::sums(ConstRows logits, float temperature, std::span<const std::int32_t> entry, std::span<RowSum> out,
                        std::span<float> entry_z, Stream stream) {
  const auto rows = static_cast<std::size_t>(logits.rows);
  check(out.size() == rows && entry.size() <= rows && entry_z.size() == entry.size(),
        "ParallelHead::sums: one result a row, at most one entry a row");
  // Equal messages from all ranks: per row the slices of the largest share, then the entry in `max` of one more record.
  const std::size_t ranks = group_.size();
  const std::size_t share = (kCanonicalSlices + ranks - 1) / ranks;
  const std::size_t record = share + 1;
  my_slices_.resize(rows * slices_.size());
  my_sums_.assign(rows * record, SliceSum{kMinusInfinity, 0.0F});
  all_sums_.resize(my_sums_.size() * ranks);
  const Range vocabulary = plan_.vocabulary();
  for (std::size_t r = 0; r < entry.size(); ++r) {
    if (vocabulary.contains(entry[r])) {
      const float* at = logits.row(static_cast<std::int64_t>(r)) + (entry[r] - vocabulary.begin);
      backend_.download(value_bytes(my_sums_[r * record + share].max), reinterpret_cast<const std::byte*>(at), stream);
    }
  }
  backend_.slice_sum(logits, temperature, slices_, my_slices_, stream);
  backend_.synchronize(stream);
  for (std::size_t r = 0; r < rows; ++r) {
    std::copy_n(my_slices_.begin() + r * slices_.size(), slices_.size(), my_sums_.begin() + r * record);
    my_sums_[r * record + share].max /= temperature;
  }
  group_.all_gather(bytes_of(my_sums_), writable_bytes_of(all_sums_), stream);

  for (std::size_t r = 0; r < rows; ++r) {
    std::array<SliceSum, kCanonicalSlices> slices;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const SliceSum* theirs = &all_sums_[(rank * rows + r) * record];
      const Range owned = plan_.slices_of(static_cast<int>(rank));
      std::copy_n(theirs, owned.size(), slices.begin() + owned.begin);
      if (r < entry.size() && plan_.vocabulary_of(static_cast<int>(rank)).contains(entry[r])) {
        entry_z[r] = theirs[share].max;
      }
    }
    const SliceSum all = combine_in_tree(slices.data(), kCanonicalSlices);
    out[r] = {all.max, all.sum};
  }
}

void ParallelHead::download_shard(ConstRows logits, std::span<float> mine, Stream stream) {
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    backend_.download(std::as_writable_bytes(mine.subspan(r * plan_.max_vocabulary_shard(), local_vocabulary())),
                      reinterpret_cast<const std::byte*>(logits.row(r)), stream);
  }
  backend_.synchronize(stream);
}

template <typename Put>
void ParallelHead::each_shard(std::int64_t rows, Put put) const {
  const std::int64_t shard = plan_.max_vocabulary_shard();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Range theirs = plan_.vocabulary_of(rank);
    for (std::int64_t r = 0; r < rows; ++r) {
      put(std::span(all_rows_).subspan((rank * rows + r) * shard, theirs.size()), r * vocabulary() + theirs.begin);
    }
  }
}

void ParallelHead::gather_rows(ConstRows logits, std::span<float> out, Stream stream) {
  const bool root = group_.rank() == 0;
  check(out.size() == (root ? static_cast<std::size_t>(logits.rows * vocabulary()) : 0),
        "ParallelHead::gather_rows: whole rows on rank 0, nothing elsewhere");
  const std::int64_t shards = logits.rows * plan_.max_vocabulary_shard();
  all_rows_.resize(shards * (root ? group_.size() : 1));
  const std::span<float> mine = std::span(all_rows_).first(shards);  // on rank 0 in its place among all
  download_shard(logits, mine, stream);
  group_.gather(std::as_bytes(mine), root ? writable_bytes_of(all_rows_) : std::span<std::byte>{}, 0, stream);
  if (!root) return;
  each_shard(logits.rows,
             [&](std::span<const float> shard, std::int64_t at) { std::ranges::copy(shard, out.begin() + at); });
}

void ParallelHead::whole_rows(ConstRows logits, Rows out, Stream stream) {
  check(out.rows == logits.rows && out.cols == vocabulary() && out.stride == out.cols,
        "ParallelHead::whole_rows: whole rows, one after another");
  const std::int64_t shards = logits.rows * plan_.max_vocabulary_shard();
  all_rows_.resize(shards * group_.size());
  const std::span<float> mine = std::span(all_rows_).subspan(shards * group_.rank(), shards);
  download_shard(logits, mine, stream);
  group_.all_gather(std::as_bytes(mine), writable_bytes_of(all_rows_), stream);
  each_shard(logits.rows, [&](std::span<const float> shard, std::int64_t at) {
    backend_.upload(reinterpret_cast<std::byte*>(out.data + at), std::as_bytes(shard), stream);
  });
}

}  // namespace specdec
