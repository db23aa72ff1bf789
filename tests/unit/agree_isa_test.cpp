#include "runtime/agree_isa.h"

#include <gtest/gtest.h>

#include <string>

#include "backend/error.h"
#include "parallel/thread_communicator.h"

namespace specdec {
namespace {

TEST(AgreeOnIsa, TheWeakestOfAllRanksCounts) {
  const std::string best(name_of(detect_isa()));
  for (const int weak : {0, 1, 2}) {
    run_ranks(3, [&](Communicator& group) {
      // A rank that asks for scalar stands for a host that has no more.
      const std::string asked = group.rank() == weak ? "scalar" : group.rank() == (weak + 1) % 3 ? "auto" : best;
      EXPECT_EQ(agree_on_isa(group, asked, "parallel.isa"), Isa::kScalar) << "rank " << group.rank();
    });
  }
  run_ranks(3, [&](Communicator& group) { EXPECT_EQ(agree_on_isa(group, "auto", "--isa"), detect_isa()); });
}

TEST(AgreeOnIsa, OneRankThatHasItNotIsEveryRanksError) {
  run_ranks(3, [](Communicator& group) {
    try {
      agree_on_isa(group, group.rank() == 1 ? "avx9000" : "auto", "parallel.isa");
      ADD_FAILURE() << "rank " << group.rank() << " goes on";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_EQ(std::string(error.what()),
                "parallel.isa: found avx9000, expected auto or one that this machine has, at most " +
                    std::string(name_of(detect_isa())));
    }
  });
}

}  // namespace
}  // namespace specdec
