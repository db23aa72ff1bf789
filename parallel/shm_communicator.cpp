#include "parallel/shm_communicator.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/error.h"
#include "parallel/tree.h"

namespace specdec {
namespace {

constexpr int kBells = 4;  // a rank is at most two steps ahead of another
constexpr std::size_t kPlaceBytes = 256 * 1024;
/// What can be read from another core while two ranks wait for each other once: the price of two-shot's second wait (half a
/// microsecond and 9 GB/s, measured).
constexpr std::size_t kBytesAWait = 4 * 1024;
/// Where adding n-th parts side by side begins to be worth a second change of ranks on shared cores (8 ranks on two, measured).
constexpr std::size_t kCombineBytes = 128 * 1024;

/// From how much on a payload is worth being written past the caches where shared lines are costly. Two ranks, Zen 4, with and without, us: on one chiplet
/// 0.7 and 1.1 of 4 KB, 1.3 and 1.9 of 8, 2.5 and 3.0 of 16, 18 and 20 of 128; on two 2.6 and 1.3, 4.9 and 1.9, 9.3 and 2.8, 69 and 15.
constexpr std::size_t kPastCachesBytes = 8 * 1024;

/// A number on a cache line of its own (a pair of lines, since processors fetch the neighbour too).
struct alignas(128) Line {
  std::atomic<std::uint32_t> value;
};

/// `range` [0, size) in `parts` parts at multiples of a cache line of floats.
std::pair<std::size_t, std::size_t> part_of(std::size_t size, int part, int parts) {
  constexpr std::size_t kGrain = 16;
  const std::size_t grains = (size + kGrain - 1) / kGrain;
  const auto at = [&](int p) { return std::min(size, grains * p / parts * kGrain); };
  return {at(part), at(part + 1)};
}

void copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty() && to != from.data()) {
    std::memcpy(to, from.data(), from.size());
  }
}

/// Past this core's caches; `to` is at the beginning of a line. What was copied is there when it returns.
void copy_past_caches(std::span<const std::byte> from, std::byte* to) {
  constexpr std::size_t kStored = sizeof(__m128i);
  const std::size_t whole = from.size() / kStored * kStored;
  for (std::size_t i = 0; i < whole; i += kStored) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.data() + i)));
  }
  copy(from.subspan(whole), to + whole);
  _mm_sfence();
}

/// Calls step(offset, count) for the pieces of `size` elements that fit into a place; once for none of them with 0.
template <typename Piece>
void in_pieces(std::size_t size, std::size_t largest, Piece&& piece) {
  std::size_t offset = 0;
  do {
    const std::size_t count = std::min(largest, size - offset);
    piece(offset, count);
    offset += count;
  } while (offset < size);
}

}  // namespace

/// The beginning of the region; the places follow: of every rank, and for sums, one in each half, the two side by side so that the rank
/// that uses them has reserved them.
struct ShmCommunicator::Layout {
  std::array<Line, kMaxRanks> come;    // [rank] the last step that the rank has come to
  std::array<Line, kMaxRanks> node;    // arrivals at the node of the tree whose upper half begins with this rank
  Line combined;                       // the last step whose sum has been combined
  std::array<Doorbell, kBells> bells;  // rung by a root, and by whoever combines the sum
  std::array<Doorbell, kBells> bells_for_all;  // rung by the last to come
};

std::size_t ShmCommunicator::region_bytes(int ranks) {
  return sizeof(Layout) + 2 * kPlaceBytes * (static_cast<std::size_t>(ranks) + 1);
}

ShmCommunicator::ShmCommunicator(std::shared_ptr<SharedRegion> region, int rank, int size, Progress& progress,
                                 ShmOptions options)
    : region_(std::move(region)),
      layout_(*reinterpret_cast<Layout*>(region_->bytes().data())),
      rank_(rank),
      size_(size),
      progress_(progress),
      options_(options),
      past_caches_(options.past_caches.value_or(has_costly_shared_lines())),
      waiter_(size, options.cores),
      step_(options.first_step),
      all_left_(options.first_step),
      float_leaves_(size),
      bf16_leaves_(size) {
  check(size_ >= 1 && size_ <= kMaxRanks && region_->bytes().size() >= region_bytes(size_),
        "shm: too many ranks or too small a region");
  layout_.come[rank_].value.store(step_, std::memory_order_seq_cst);
}

ShmCommunicator::~ShmCommunicator() = default;

std::byte* ShmCommunicator::place(Step step, int rank) const {
  return region_->bytes().data() + sizeof(Layout) + (rank * 2 + step % 2) * kPlaceBytes;
}

template <typename T>
std::span<T> ShmCommunicator::elements(Step step, int rank, std::size_t count) const {
  return {reinterpret_cast<T*>(place(step, rank)), count};
}

template <typename T>
std::span<std::span<const T>> ShmCommunicator::leaves() {
  if constexpr (std::is_same_v<T, float>) {
    return float_leaves_;
  } else {
    return bf16_leaves_;
  }
}

void ShmCommunicator::begin_step() {
  ++step_;
  if (step_ - all_left_ > 2) {
    wait_for_all(step_ - 1);
  }
}

bool ShmCommunicator::past_caches(std::size_t bytes) const { return past_caches_ && bytes >= kPastCachesBytes; }

void ShmCommunicator::offer(std::span<const std::byte> payload) {
  std::byte* const to = place(step_, rank_);
  if (past_caches(payload.size())) {
    copy_past_caches(payload, to);
  } else {
    copy(payload, to);
  }
}

bool ShmCommunicator::all_have_come_to(Step step) const {
  for (int r = 0; r < size_; ++r) {
    if (static_cast<std::int32_t>(layout_.come[r].value.load(std::memory_order_seq_cst) - step) < 0) {
      return false;
    }
  }
  return true;
}

void ShmCommunicator::come() {
  layout_.come[rank_].value.store(step_, std::memory_order_seq_cst);
  if (all_have_come_to(step_)) {
    bell_for_all(step_).ring();
  }
}

void ShmCommunicator::wait_for_all(Step step) {
  waiter_.wait(bell_for_all(step), Waiter::Expected::kShort, [&] { return all_have_come_to(step); });
  all_left_ = step - 1;
}

Doorbell& ShmCommunicator::bell(Step step) { return layout_.bells[step % kBells]; }

Doorbell& ShmCommunicator::bell_for_all(Step step) { return layout_.bells_for_all[step % kBells]; }

ShmReduction ShmCommunicator::way(std::size_t bytes) const {
  if (options_.reduction) {
    return *options_.reduction;
  }
  if (size_ > options_.cores) {
    return bytes <= kCombineBytes ? ShmReduction::kCombine : ShmReduction::kTwoShot;
  }
  // One-shot reads n - 1 payloads, two-shot 2 (n - 1) / n of them: nothing more for two ranks.
  const std::size_t extra = bytes * (size_ - 1) * (size_ - 2) / size_;
  return extra <= kBytesAWait ? ShmReduction::kOneShot : ShmReduction::kTwoShot;
}

void ShmCommunicator::all_reduce(std::span<float> data, Stream /*stream*/) { reduce(data); }

void ShmCommunicator::all_reduce(std::span<BF16> data, Stream /*stream*/) { reduce(data); }

template <typename T>
void ShmCommunicator::reduce(std::span<T> data) {
  const InCollective guard(progress_);
  switch (way(data.size_bytes())) {
    case ShmReduction::kCombine:
      return combine(data);
    case ShmReduction::kOneShot:
      return one_shot(data);
    case ShmReduction::kTwoShot:
      return two_shot(data);
  }
}

template <typename T>
void ShmCommunicator::combine(std::span<T> data) {
  in_pieces(data.size(), kPlaceBytes / sizeof(T), [&](std::size_t offset, std::size_t count) {
    const std::span<T> piece = data.subspan(offset, count);
    begin_step();
    std::span<const T> payload = piece;
    if (!sibling_has_come()) {  // else nobody but this rank will read the payload
      payload = elements<T>(step_, rank_, count);
      std::ranges::copy(piece, elements<T>(step_, rank_, count).begin());
    }
    layout_.come[rank_].value.store(step_, std::memory_order_release);  // nobody sleeps for it: all wait for `combined`
    if (climb(payload)) {
      layout_.combined.value.store(step_, std::memory_order_seq_cst);
      bell(step_).ring();
    } else {
      waiter_.wait(bell(step_), Waiter::Expected::kShort,
                   [&] { return layout_.combined.value.load(std::memory_order_seq_cst) == step_; });
    }
    all_left_ = step_ - 1;
    const std::array<std::span<const T>, 1> sum = {elements<T>(step_, 0, count)};
    // Whoever came second will mostly do so again, and not write to its place.
    const bool came_second = payload.data() == piece.data();
    tree_sum(sum, piece, came_second ? nullptr : place(step_ + 1, rank_));
  });
}

/// At the first node of this rank's way up; once true it stays so until this rank comes too.
bool ShmCommunicator::sibling_has_come() const {
  for (int stride = 1; stride < size_; stride *= 2) {
    const int mine = rank_ / stride * stride;
    const int sibling = mine ^ stride;
    if (sibling < size_) {
      return layout_.node[std::max(mine, sibling)].value.load(std::memory_order_acquire) % 2 == 1;
    }
  }
  return false;
}

template <typename T>
bool ShmCommunicator::climb(std::span<const T> payload) {
  std::span<const T> my_half = payload;
  for (int stride = 1; stride < size_; stride *= 2) {
    const int mine = rank_ / stride * stride;
    const int sibling = mine ^ stride;
    if (sibling >= size_) {
      continue;
    }
    const auto [lower, upper] = std::minmax(mine, sibling);
    if (layout_.node[upper].value.fetch_add(1, std::memory_order_acq_rel) % 2 == 0) {
      return false;
    }
    const std::span<const T> other_half = elements<T>(step_, sibling, payload.size());
    const std::span<T> sum = elements<T>(step_, lower, payload.size());
    tree_sum(mine == lower ? std::array{my_half, other_half} : std::array{other_half, my_half}, sum);
    my_half = sum;
  }
  return true;
}

template <typename T>
void ShmCommunicator::one_shot(std::span<T> data) {
  in_pieces(data.size(), kPlaceBytes / sizeof(T), [&](std::size_t offset, std::size_t count) {
    const std::span<T> piece = data.subspan(offset, count);
    begin_step();
    offer(std::as_bytes(piece));
    come();
    wait_for_all(step_);
    const std::span<std::span<const T>> leaves = this->leaves<T>();
    for (int r = 0; r < size_; ++r) {
      leaves[r] = r == rank_ ? piece : elements<T>(step_, r, count);
    }
    // The next payload's place is fetched for writing meanwhile.
    tree_sum(leaves, piece, past_caches(piece.size_bytes()) ? nullptr : place(step_ + 1, rank_));
  });
}

template <typename T>
void ShmCommunicator::two_shot(std::span<T> data) {
  // The sums of a piece are complete when all have come to the step after it, so a step both adds a piece and takes the sums of the
  // one before.
  std::span<T> before;
  const auto take_sums = [&] { std::ranges::copy(elements<T>(step_ - 1, size_, before.size()), before.begin()); };
  in_pieces(data.size(), kPlaceBytes / sizeof(T), [&](std::size_t offset, std::size_t count) {
    const std::span<T> piece = data.subspan(offset, count);
    begin_step();
    std::ranges::copy(piece, elements<T>(step_, rank_, count).begin());
    come();
    wait_for_all(step_);
    const auto [begin, end] = part_of(count, rank_, size_);
    const std::span<std::span<const T>> leaves = this->leaves<T>();
    for (int r = 0; r < size_; ++r) {
      leaves[r] = elements<T>(step_, r, count).subspan(begin, end - begin);
    }
    tree_sum(leaves, elements<T>(step_, size_, count).subspan(begin, end - begin));
    take_sums();
    before = piece;
  });
  begin_step();
  come();
  wait_for_all(step_);
  take_sums();
}

void ShmCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream /*stream*/) {
  check(all.size() == mine.size() * size_, "all_gather: `all` must hold size() * mine.size() bytes");
  const InCollective guard(progress_);
  in_pieces(mine.size(), kPlaceBytes, [&](std::size_t offset, std::size_t count) {
    begin_step();
    copy(mine.subspan(offset, count), place(step_, rank_));
    come();
    wait_for_all(step_);
    take_places(mine, all, offset, count);
  });
}

void ShmCommunicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream /*stream*/) {
  check(root >= 0 && root < size_, "gather: root outside the group");
  check(rank_ != root || all.size() == mine.size() * size_, "gather: `all` must hold size() * mine.size() bytes");
  const InCollective guard(progress_);
  in_pieces(mine.size(), kPlaceBytes, [&](std::size_t offset, std::size_t count) {
    begin_step();
    if (rank_ != root) copy(mine.subspan(offset, count), place(step_, rank_));
    come();
    if (rank_ == root) {
      wait_for_all(step_);
      take_places(mine, all, offset, count);
    }
  });
}

void ShmCommunicator::take_places(std::span<const std::byte> mine, std::span<std::byte> all, std::size_t offset,
                                  std::size_t count) const {
  for (int r = 0; r < size_; ++r) {
    const std::span<const std::byte> theirs =
        r == rank_ ? mine.subspan(offset, count) : std::span<const std::byte>(place(step_, r), count);
    copy(theirs, all.data() + mine.size() * r + offset);
  }
}

void ShmCommunicator::broadcast(std::span<std::byte> data, int root, Stream /*stream*/) {
  check(root >= 0 && root < size_, "broadcast: root outside the group");
  const InCollective guard(progress_);
  in_pieces(data.size(), kPlaceBytes, [&](std::size_t offset, std::size_t count) {
    const std::span<std::byte> piece = data.subspan(offset, count);
    begin_step();
    if (rank_ == root) {
      copy(piece, place(step_, root));
      come();
      bell(step_).ring();
      return;
    }
    come();
    const std::atomic<std::uint32_t>& root_came = layout_.come[root].value;
    waiter_.wait(bell(step_), Waiter::Expected::kLong,
                 [&] { return static_cast<std::int32_t>(root_came.load(std::memory_order_seq_cst) - step_) >= 0; });
    copy({place(step_, root), count}, piece.data());
  });
}

void ShmCommunicator::barrier() {
  const InCollective guard(progress_);
  begin_step();
  come();
  wait_for_all(step_);
}

}  // namespace specdec
