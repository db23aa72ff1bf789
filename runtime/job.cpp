#include "runtime/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backend/error.h"
#include "backend/factory.h"
#include "parallel/agree.h"
#include "parallel/host_cores.h"
#include "parallel/rank_place.h"
#include "runtime/adaptive_draft_length.h"
#include "runtime/agree_isa.h"
#include "runtime/configuration_hash.h"
#include "runtime/model_drafter.h"
#include "runtime/pass_work.h"
#include "runtime/prompt_ids.h"

namespace specdec {

namespace {

constexpr TraceKind kLoad{.name = "load"};
constexpr TraceKind kWarmUp{.name = "warm up"};
constexpr TraceKind kAutoregressive{.name = name_of(Method::kAutoregressive)};
constexpr TraceKind kSpeculative{.name = name_of(Method::kSpeculative)};
/// By its place in `interconnect`; the trace's head has their names.
constexpr TraceKind kModelled{.name = "modelled interconnect", .numbered = true};

}  // namespace

/// The draft model, or this rank's part of it.
struct Job::Draft {
  Draft(const RunConfig& config, const ModelConfig& shape, Backend& backend, Communicator& target_group,
        const TransformerOptions& options, Tracer* tracer)
      : weights(open_weights(config.draft, config.weights)),
        model(shape, *weights, backend, config.placement == Placement::kSharded ? target_group : self, options),
        drafter(model, config.decode.sampling, config.decode.seed, 1, tracer, drafts_together(config.placement)) {}

  SelfCommunicator self;
  std::unique_ptr<TensorSource> weights;
  Transformer model;
  ModelDrafter drafter;
};

namespace {

/// For runs whose output nobody wants.
class NoSink final : public OutputSink {
 public:
  void begin_output(const std::string&, std::span<const Token>) override {}
  void prefilled(double) override {}
  void append(std::span<const Token>, const std::string&, const LoopRecord&) override {}
  void finish_output(const std::string&, const std::string&) override {}
};

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

}  // namespace

Job::Job(const RunConfig& config, JobGroups& groups, Progress& progress, std::function<bool()> interrupted,
         Tracer* tracer, LocalRank local)
    : config_(config),
      tracer_(tracer),
      world_(groups.world()),
      only_drafts_(groups.only_drafts()),
      links_(groups.control(), groups.target(), config.interconnects, config.decode.seed, groups.drafts()),
      control_(links_.control(), tracer, 0),
      target_group_(links_.target_group(), tracer, 1),
      interrupted_(std::move(interrupted)),
      device_wait_(progress, target_group_),
      channel_(control_, progress, config.decode.k) {
  const Span span(tracer_, kLoad);
  channel_.on_begin([this](const Round& round) { links_.take(static_cast<std::size_t>(round.interconnect)); });
  const Isa isa = agree_on_isa(world_, config_.parallel.isa, "parallel.isa");
  agree(world_, [&] {
    weights_cache_ = std::make_unique<WeightsCache>(config_, [this] { world_.report_progress(); });
    backend_ = make_backend({.name = config_.backend,
                             .isa = isa,
                             .threads = config_.parallel.threads.value_or(1),
                             .pin = pinning_wanted(),
                             .packed_cache = weights_cache_->packed(),
                             .cuda = {.local_rank = local.rank,
                                      .local_ranks = local.ranks,
                                      .share = config_.parallel.share_gpus,
                                      .products = config_.cuda.matmul,
                                      .graphs = config_.cuda.graphs,
                                      .overlap = config_.cuda.overlap,
                                      .fuse = config_.cuda.fuse,
                                      .prefetch_bytes = config_.cuda.prefetch << 20}});
    backend_->observe_waits(&device_wait_);
    if (!only_drafts_) load();
    load_draft(isa);
    if (is_root()) {
      load_prompts();
    }
  });
  cache_record_ = weights_cache_->gather(world_);
  for (const RankPlace& place : rank_places(world_)) add_once(cpus_, place.cpu);
  if (links_.drafts() != nullptr) {
    drafts_.emplace(*links_.drafts(), tracer, 2);
    draft_link_.emplace(*drafts_, progress, *backend_, config_.decode.k,
                        config_.decode.sampling.greedy() ? 0 : draft_shape_->vocabulary);
    draft_link_->on_begin(
        [this](std::int32_t interconnect) { links_.take_drafts(static_cast<std::size_t>(interconnect)); });
    if (is_root()) dedicated_.emplace(*draft_link_, draft_shape_->context);
  }
  if (only_drafts_) return;
  verifier_ = make_verifier(config_.acceptance);
  decision_ =
      std::make_unique<Decision>(target_->head(), is_root(), config_.decode.sampling, *verifier_, config_.decode.seed);
  std::optional<std::uint64_t> configuration;
  if (config_.parallel.agreement) {
    configuration = configuration_hash(config_, target_->config(), *weights_, name_of(isa), world_.size());
  }
  scorer_ = std::make_unique<Scorer>(*target_, target_group_, *decision_, configuration, tracer_);
}

Job::~Job() = default;

MachineRecord Job::machine(const std::vector<std::string>& hosts) const {
  MachineRecord machine{.ranks = world_.size(),
                        .cpus = cpus_,
                        .threads = config_.parallel.threads.value_or(1),
                        .backend = backend_->description(),
                        .transport = std::string(target_group_.transport()),
                        .dtype = std::string(name_of(config_.dtype)),
                        .draft_dtype = config_.draft.empty() ? "" : std::string(name_of(config_.type_of_draft())),
                        .weights_cache = cache_record_};
  if (draft_shape_) machine.operations_ratio = operations_ratio(*draft_shape_, target_->config());
  for (const std::string& host : hosts) add_once(machine.hosts, host);
  return machine;
}

void Job::load() {
  weights_ = open_weights(config_.target, config_.weights);
  target_ = std::make_unique<Transformer>(
      load_model_config(config_.target), *weights_, *backend_, target_group_,
      TransformerOptions{.dtype = config_.dtype, .max_rows = config_.decode.k + 1, .tracer = tracer_});
}

void Job::load_draft(Isa isa) {
  const bool drafts = config_.drafts_on(world_.rank(), world_.size());
  if (config_.draft.empty() || (!drafts && !is_root())) return;
  draft_shape_ = load_model_config(config_.draft);
  if (target_ != nullptr && target_->config().vocabulary != draft_shape_->vocabulary) {
    throw_bad_input(fmt::format("draft: {} has a vocabulary of {}, expected the target's {} ({})",
                                config_.draft.string(), draft_shape_->vocabulary, target_->config().vocabulary,
                                config_.target.string()));
  }
  if (drafts) {
    draft_ = std::make_unique<Draft>(config_, *draft_shape_, *backend_, target_group_,
                                     TransformerOptions{.dtype = config_.type_of_draft(), .max_rows = 2}, tracer_);
  }
  if (is_root() && config_.decode.draft_length == DraftLengthRule::kOptimal) {
    for (const InterconnectChoice& choice : config_.interconnects) {
      loop_times_.push_back(expected_loop_times(config_, target_->config(), *draft_shape_, world_.size(), isa, choice));
    }
  }
}

void Job::load_prompts() {
  if (has_tokenizer(config_.target)) {
    tokenizer_ = load_tokenizer(config_.target);
  }
  if (tokenizer_ && draft_shape_ && has_tokenizer(config_.draft)) {
    require_same_vocabulary(*tokenizer_, *load_tokenizer(config_.draft));
  }
  for (std::size_t i = 0; i < config_.prompts.size(); ++i) {
    prompts_.push_back(encode(i));
  }
}

EncodedPrompt Job::encode(std::size_t index) const {
  const std::string name = prompt_name(index);
  const ModelConfig& model = target_->config();
  EncodedPrompt encoded{.text = config_.prompts[index].text,
                        .ids = prompt_ids(config_, index, tokenizer_.get(), model.vocabulary)};
  // Of a text too: a tokenizer may have more tokens than the model has rows for.
  for (const Token id : encoded.ids) {
    if (id < 0 || id >= model.vocabulary) {
      throw_bad_input(fmt::format("{}: found id {}, expected 0 to {}", name, id, model.vocabulary - 1));
    }
  }
  const auto size = static_cast<std::int64_t>(encoded.ids.size());
  if (size == 0) {
    throw_bad_input(name + ": found no tokens, expected at least one");
  }
  if (size >= model.context) {
    throw_bad_input(fmt::format("{}: found {} tokens, expected fewer than the {} positions of {}", name, size,
                                model.context, config_.target.string()));
  }
  return encoded;
}

EndRules Job::end_rules() const {
  return {.max_new_tokens = config_.decode.max_new_tokens,
          .eos = config_.decode.ignore_eos ? std::vector<Token>{} : target_->config().eos,
          .stop = config_.decode.stop};
}

bool Job::generate(Method method, std::size_t index, const EndRules& rules, OutputSink& sink,
                   std::size_t interconnect) {
  const Span modelled(config_.interconnects[interconnect] ? tracer_ : nullptr, kModelled,
                      static_cast<std::int64_t>(interconnect));
  const Span span(tracer_, method == Method::kSpeculative ? kSpeculative : kAutoregressive);
  Drafter* drafter = nullptr;
  if (method == Method::kSpeculative && dedicated_) {
    dedicated_->use(static_cast<std::int32_t>(interconnect));
    drafter = &*dedicated_;
  } else if (method == Method::kSpeculative && draft_) {
    drafter = &draft_->drafter;
  }
  const std::unique_ptr<DraftLength> length =
      make_draft_length(config_.decode, loop_times_.empty() ? std::vector<double>() : loop_times_[interconnect]);
  Coordinator coordinator(*scorer_, channel_, drafter, *length, tokenizer_.get(), rules, interrupted_, tracer_);
  return coordinator.generate(static_cast<std::uint32_t>(index), prompts_[index].text, prompts_[index].ids, sink,
                              static_cast<std::int32_t>(interconnect));
}

bool Job::generate(Method method, std::size_t index, OutputSink& sink, std::size_t interconnect) {
  return generate(method, index, end_rules(), sink, interconnect);
}

void Job::warm_up() {
  const Span span(tracer_, kWarmUp);
  constexpr std::int64_t kTokens = 8;
  EndRules rules = end_rules();
  rules.max_new_tokens = std::min(rules.max_new_tokens, kTokens);
  NoSink sink;
  for (std::size_t i = 0; i < config_.interconnects.size(); ++i) {
    for (const Method method : config_.methods()) {
      generate(method, 0, rules, sink, i);
    }
  }
}

void Job::end() {
  if (dedicated_) dedicated_->end();
  end_job(channel_);
}

void Job::follow() {
  if (only_drafts_) {
    serve_drafts(*draft_link_, draft_->drafter, config_.acceptance, config_.decode.seed, draft_shape_->vocabulary,
                 tracer_);
  } else {
    run_worker(*scorer_, channel_, tracer_, draft_ ? &draft_->drafter : nullptr);
  }
}

}  // namespace specdec
