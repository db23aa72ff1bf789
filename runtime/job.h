#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "models/tokenizer.h"
#include "models/transformer.h"
#include "parallel/communicator.h"
#include "parallel/device_wait.h"
#include "parallel/host_map.h"
#include "parallel/self_communicator.h"
#include "parallel/timed_communicator.h"
#include "runtime/config.h"
#include "runtime/coordinator.h"
#include "runtime/decision.h"
#include "runtime/dedicated_draft.h"
#include "runtime/job_groups.h"
#include "runtime/job_links.h"
#include "runtime/record.h"
#include "runtime/round.h"
#include "runtime/scorer.h"
#include "runtime/verifier.h"
#include "runtime/weights_cache.h"

namespace specdec {

/// A prompt as tokens.
struct EncodedPrompt {
  std::string text;
  std::vector<Token> ids;
};

/// One rank's part of a run: the shard of the target, on rank 0 also the tokenizer, the draft where the config places it, and the loop over them. Every rank makes
/// one and calls the same functions. Errors of any rank are thrown on all (AgreedError).
class Job {
 public:
  /// All groups but the world lie under the interconnects of the config while a prompt is decoded, prefill included; loading and packing always take the
  /// machine's own time. `interrupted` is asked once a round on rank 0. `tracer` sees control as group 0, target as group 1 and drafts as group 2.
  /// `local`: this rank among those of its host, which share its GPUs.
  Job(const RunConfig& config, JobGroups& groups, Progress& progress, std::function<bool()> interrupted,
      Tracer* tracer = nullptr, LocalRank local = {});
  ~Job();

  /// On rank 0 the prompts as ids; empty elsewhere.
  const std::vector<EncodedPrompt>& prompts() const { return prompts_; }
  /// What the job runs on, for reports; `hosts` of every rank.
  /// `weights_cache` is on rank 0 alone.
  MachineRecord machine(const std::vector<std::string>& hosts) const;

  /// On rank 0: continues prompt `index` with `method` under number `interconnect` of RunConfig::interconnects, telling `sink`. False when
  /// the user interrupted it.
  bool generate(Method method, std::size_t index, OutputSink& sink, std::size_t interconnect = 0);
  /// What the interconnect of the last prompt, if modelled, did on this rank meanwhile.
  ModelledTotals modelled() const { return links_.totals(); }
  /// On rank 0: a few tokens of the first prompt in every way that will run, so that no measured round pays for first touches.
  void warm_up();
  /// On rank 0: lets the others leave follow().
  void end();
  /// On every other rank: does what rank 0 says until end().
  void follow();

 private:
  struct Draft;
  bool is_root() const { return world_.rank() == 0; }
  void load();
  void load_draft(Isa isa);
  void load_prompts();
  EncodedPrompt encode(std::size_t index) const;
  EndRules end_rules() const;
  bool generate(Method method, std::size_t index, const EndRules& rules, OutputSink& sink, std::size_t interconnect);

  const RunConfig config_;
  Tracer* tracer_;
  Communicator& world_;
  const bool only_drafts_;
  JobLinks links_;
  TimedCommunicator control_;
  TimedCommunicator target_group_;
  std::optional<TimedCommunicator> drafts_;
  std::function<bool()> interrupted_;
  DeviceWait device_wait_;
  std::unique_ptr<WeightsCache> weights_cache_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TensorSource> weights_;
  std::unique_ptr<Transformer> target_;
  std::optional<ModelConfig> draft_shape_;  ///< where this rank has to do with it
  std::unique_ptr<Draft> draft_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<EncodedPrompt> prompts_;
  WeightsCacheRecord cache_record_;
  std::vector<std::string> cpus_;
  std::vector<std::vector<double>> loop_times_;  ///< for an optimal K, on rank 0, under each interconnect
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<Decision> decision_;
  std::unique_ptr<Scorer> scorer_;
  RoundChannel channel_;
  std::optional<DraftLink> draft_link_;
  std::optional<DedicatedDrafter> dedicated_;  ///< on rank 0
};

}  // namespace specdec
