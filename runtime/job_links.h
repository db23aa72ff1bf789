#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/modelled_link.h"
#include "runtime/interconnect_choice.h"

namespace specdec {

/// The communicators of a job as its models and its coordinator see them: under one of the job's interconnects at a time. With no modelled one
/// among them these are the real communicators themselves.
class JobLinks {
 public:
  /// `choices`: the same on all ranks; until take() messages take the machine's own time. Collective over both communicators. Throws
  /// AgreedError (kBadInput) where ranks on several hosts ask for a modelled one.
  /// `drafts`: of rank 0 and a rank that only drafts, or null.
  JobLinks(Communicator& control, Communicator& target_group, std::vector<InterconnectChoice> choices,
           std::uint64_t seed, Communicator* drafts = nullptr);

  Communicator& control() { return control_link_ ? *control_link_ : control_; }
  Communicator& target_group() { return target_link_ ? *target_link_ : target_group_; }

  Communicator* drafts() { return drafts_link_ ? drafts_link_.get() : drafts_; }
  /// As take(), of drafts(), whose two ranks come to a new sequence at a time of their own.
  void take_drafts(std::size_t index);

  /// From now on both communicators are under choice `index`. All ranks between the same two collectives.
  void take(std::size_t index);
  /// What modelled collectives did on this rank since the last take().
  ModelledTotals totals() const { return running_totals() - at_take_; }

 private:
  /// Throws Disagreement for an index that the job has not.
  const InterconnectChoice& choice(std::size_t index) const;
  ModelledTotals running_totals() const;

  Communicator& control_;
  Communicator& target_group_;
  Communicator* drafts_;
  std::vector<InterconnectChoice> choices_;
  std::unique_ptr<ModelledLink> control_link_;
  std::unique_ptr<ModelledLink> target_link_;
  std::unique_ptr<ModelledLink> drafts_link_;
  ModelledTotals at_take_;
};

}  // namespace specdec
