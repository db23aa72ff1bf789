#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/row_chain.h"

namespace specdec::cuda {

/// The rows of the pass that is being computed, as kernels read them. Copied when they change, which is once a pass and not once a layer.
template <class Device>
class ChainOnDevice {
 public:
  /// The device works in order, so what was there has been read by then.
  void set(Device& device, const RowChain& chain) {
    words_.clear();
    words_.push_back(static_cast<std::int32_t>(chain.first_slot));
    words_.insert(words_.end(), chain.position.begin(), chain.position.end());
    if (!chain.parent.empty()) {
      append_visible(chain);
    }
    std::int32_t* const copy = memory_.template take<std::int32_t>(device, words_.size());
    if (copy != copy_ || words_ != copied_) {
      device.upload(reinterpret_cast<std::byte*>(copy), std::as_bytes(std::span(words_)));
      copy_ = copy;
      copied_ = words_;
    }
    rows_ = std::ssize(chain.position);
  }

  /// Where all of it lies: another place once more rows came than ever before.
  const void* address() const { return copy_; }
  const std::int32_t* first_slot() const { return copy_; }
  const std::int32_t* position() const { return copy_ + 1; }
  VisibleSlots visible() const {
    const std::int32_t* const depth = position() + rows_;
    return {first_slot(), depth, in_order_ ? nullptr : depth + rows_, rows_};
  }
  /// Whether the rows are the links 0, 1, 2, ... of one chain.
  bool in_order() const { return in_order_; }

 private:
  void append_visible(const RowChain& chain) {
    find_depths(chain, depth_);
    words_.insert(words_.end(), depth_.begin(), depth_.end());
    const std::int64_t rows = chain.rows();
    in_order_ = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      in_order_ = in_order_ && depth_[r] == r;
    }
    if (in_order_) {
      return;
    }
    const std::size_t path = words_.size();
    words_.resize(path + rows * rows, 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int64_t at = r;
      for (std::int64_t d = depth_[r]; d >= 0; --d, at = chain.parent[at]) {
        words_[path + r * rows + d] = static_cast<std::int32_t>(at);
      }
    }
  }

  Scratch<Device> memory_;
  std::int32_t* copy_ = nullptr;
  std::vector<std::int32_t> words_;   // first slot, positions, depths, paths
  std::vector<std::int32_t> copied_;  // what is there
  std::vector<std::int32_t> depth_;
  std::int64_t rows_ = 0;
  bool in_order_ = true;
};

}  // namespace specdec::cuda
