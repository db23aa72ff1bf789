#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/mpi_session.h"
#include "runtime/config.h"

namespace specdec {

/// The groups of ranks in which a job speaks.
class JobGroups {
 public:
  /// `world`: all ranks; outlives the groups. Collective. Throws AgreedError (kBadInput) where the config's placement does not suit the number of ranks.
  JobGroups(MpiSession& session, Communicator& world, const RunConfig& config);
  /// Where nobody only drafts: `target`, of the same ranks, outlives the groups too.
  JobGroups(Communicator& world, Communicator& target) : world_(world), target_(&target) {}

  Communicator& world() { return world_; }
  /// Of the ranks that the target is cut over, for control messages and for sums; of itself on a rank that only drafts.
  Communicator& control() { return control_ ? *control_ : world_; }
  Communicator& target() { return *target_; }
  /// Rank 0 and the rank that only drafts; null on other ranks, and where no rank does.
  Communicator* drafts() { return drafts_.get(); }
  /// Whether this rank only drafts.
  bool only_drafts() const { return drafts_ && drafts_->rank() != 0; }

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Communicator> own_target_;
  Communicator* target_;
  std::unique_ptr<Communicator> drafts_;
};

}  // namespace specdec
