#include "runtime/job_links.h"

#include <algorithm>
#include <utility>

#include "parallel/disagreement.h"

namespace specdec {

JobLinks::JobLinks(Communicator& control, Communicator& target_group, std::vector<InterconnectChoice> choices,
                   std::uint64_t seed)
    : control_(control), target_group_(target_group), choices_(std::move(choices)) {
  if (std::ranges::any_of(choices_, [](const InterconnectChoice& choice) { return choice.has_value(); })) {
    control_link_ = make_modelled_link(control_, seed + 1);  // not the jitter of the other one
    target_link_ = make_modelled_link(target_group_, seed);
  }
}

void JobLinks::take(std::size_t index) {
  if (index >= choices_.size()) {
    throw Disagreement("a round under an interconnect that the job has not has arrived from rank 0");
  }
  if (control_link_) {
    control_link_->use(choices_[index]);
    target_link_->use(choices_[index]);
    at_take_ = running_totals();
  }
}

ModelledTotals JobLinks::running_totals() const {
  ModelledTotals sum;
  for (const ModelledLink* link : {control_link_.get(), target_link_.get()}) {
    if (link != nullptr) {
      sum += link->totals();
    }
  }
  return sum;
}

}  // namespace specdec
