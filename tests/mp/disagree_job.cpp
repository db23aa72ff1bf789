// The real decoding loop on a tiny random model, in which one rank is led astray, for disagreement_test.py.
//
//   disagree_job DIRECTORY TRANSPORT KIND RANK ROUND OUTPUT
//
// KIND: none, token (of a row), prompt, cache (one row less is kept), seed. Rank 0 writes the model into DIRECTORY, and
// stdout "done" when nothing was found; OUTPUT gets what rank 0's on_failure writes.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "parallel/agree.h"
#include "parallel/program.h"
#include "tests/support/decode_harness.h"
#include "tests/support/random_model.h"

namespace {

using namespace specdec;
using namespace specdec::tests;

Tampering tampering(const std::string& kind, std::uint32_t number) {
  Tampering what;
  if (kind == "prompt") {
    what.prompt = [](std::vector<Token>& ids) { ids.front() ^= 1; };
  } else if (kind == "token" || kind == "cache") {
    what.round = [kind, number](Round& round) {
      if (round.action != RoundAction::kScore || round.number != number) {
        return;
      }
      if (kind == "token") {
        round.rows.back().token ^= 1;
      } else {
        --round.kept;
        round.fingerprint.message = hash_of(round);
      }
    };
  }
  return what;
}

int run(MpiSession& session, char** argv) {
  const std::string kind = argv[3];
  const bool odd = session.rank() == std::atoi(argv[4]);
  const auto number = static_cast<std::uint32_t>(std::atoi(argv[5]));
  session.watchdog().set_deadline(30);
  int callback = 0;
  if (session.rank() == 0) {
    // Not LastWords, which ends with the scope that an exception leaves.
    callback = session.watchdog().on_failure([output = std::string(argv[6])](const Failure& failure) {
      std::ofstream(output) << "rank " << failure.rank << " code " << failure.exit_code << "\n";
    });
  }
  const auto group = session.world(argv[2]);
  const std::filesystem::path model = std::filesystem::path(argv[1]) / "model";
  agree(*group, [&] {
    if (session.rank() == 0) {
      write_random_model({.layers = 1, .seed = 3}, model);
    }
  });
  DecodeCase settings{
      .target = model, .kind = DraftKind::kTarget, .k = 3, .sampling = {.temperature = 1, .top_p = 0.9F}, .seed = 4};
  settings.rules.max_new_tokens = 60;
  if (odd && kind == "seed") {
    settings.seed = 5;
  }
  DecodeRank decode(*group, settings);
  const std::vector<Token> prompt{5, 6, 7, 8};
  if (odd && session.rank() != 0 && kind != "seed") {
    decode.follow(settings, tampering(kind, number));
  } else {
    const DecodeResult result = decode.run(settings, prompt, 0, false);
    if (session.rank() == 0) {
      std::cout << "done " << result.tokens.size() << "\n";
    }
  }
  session.watchdog().take_back(callback);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return specdec::run_program(argc, argv, [&](MpiSession& session) {
    if (argc != 7) {
      throw_bad_input("usage: disagree_job DIRECTORY TRANSPORT KIND RANK ROUND OUTPUT");
    }
    return run(session, argv);
  });
}
