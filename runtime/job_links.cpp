#include "runtime/job_links.h"

#include <algorithm>
#include <utility>

#include "parallel/disagreement.h"

namespace specdec {

JobLinks::JobLinks(Communicator& control, Communicator& target_group, std::vector<InterconnectChoice> choices,
                   std::uint64_t seed, Communicator* drafts)
    : control_(control), target_group_(target_group), drafts_(drafts), choices_(std::move(choices)) {
  if (std::ranges::any_of(choices_, [](const InterconnectChoice& choice) { return choice.has_value(); })) {
    control_link_ = make_modelled_link(control_, seed + 1);  // not the jitter of the other one
    target_link_ = make_modelled_link(target_group_, seed);
    if (drafts_ != nullptr) drafts_link_ = make_modelled_link(*drafts_, seed + 2);
  }
}

const InterconnectChoice& JobLinks::choice(std::size_t index) const {
  if (index >= choices_.size()) {
    throw Disagreement("a round under an interconnect that the job has not has arrived from rank 0");
  }
  return choices_[index];
}

void JobLinks::take(std::size_t index) {
  const InterconnectChoice& taken = choice(index);
  if (control_link_) {
    control_link_->use(taken);
    target_link_->use(taken);
    at_take_ = running_totals();
  }
}

void JobLinks::take_drafts(std::size_t index) {
  const InterconnectChoice& taken = choice(index);
  if (drafts_link_) drafts_link_->use(taken);
}

ModelledTotals JobLinks::running_totals() const {
  ModelledTotals sum;
  for (const ModelledLink* link : {control_link_.get(), target_link_.get(), drafts_link_.get()}) {
    if (link != nullptr) {
      sum += link->totals();
    }
  }
  return sum;
}

}  // namespace specdec
