#include "runtime/job_groups.h"

#include "backend/error.h"
#include "parallel/agree.h"
#include "runtime/placement_ranks.h"

namespace specdec {

JobGroups::JobGroups(MpiSession& session, Communicator& world, const RunConfig& config) : world_(world) {
  const TransportOptions options{.gpu = {.share = config.parallel.share_gpus}};
  if (config.placement != Placement::kDedicated) {
    own_target_ = session.split(config.parallel.transport, 0, options);
    target_ = own_target_.get();
    return;
  }
  agree(world, [&] {
    require_target_ranks(config.placement, world.size(), "placement");
    if (config.draft.empty()) throw_bad_input("placement: found dedicated without a draft, expected one");
  });
  const bool drafts = world.rank() == world.size() - 1;
  const int part = drafts ? 1 : 0;
  control_ = session.split("auto", part);
  own_target_ = session.split(drafts ? "auto" : config.parallel.transport, part, options);
  target_ = own_target_.get();
  drafts_ = session.split("auto", drafts || world.rank() == 0 ? 0 : -1);
}

}  // namespace specdec
