#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/dtype.h"
#include "backend/sampler.h"
#include "models/config.h"
#include "models/random_tensors.h"
#include "runtime/acceptance.h"
#include "runtime/enum_names.h"
#include "runtime/interconnect_choice.h"
#include "runtime/placement.h"

namespace specdec {

/// One prompt of a run: text, or for models without a tokenizer ids, or any ids of that many.
struct Prompt {
  std::string text;
  std::optional<std::vector<Token>> ids;
  std::int64_t random = 0;  ///< 0: not this one
};

enum class Method : std::uint8_t { kAutoregressive, kSpeculative };

/// As written in a config and in reports.
constexpr std::string_view name_of(Method method) {
  return method == Method::kAutoregressive ? "autoregressive" : "speculative";
}

/// What packed weights can be.
inline constexpr std::array kWeightTypes = {DType::kBF16, DType::kF16, DType::kF32, DType::kInt8};

/// As users write them.
inline std::vector<std::string> weight_type_names() { return names_of(kWeightTypes); }
/// The one with this name, which is among them.
constexpr DType dtype_named(std::string_view name) { return value_named(kWeightTypes, name); }

/// How K is chosen (adaptive_draft_length.h).
enum class DraftLengthRule : std::uint8_t { kFixed, kHeuristic, kOptimal };
inline constexpr std::array kDraftLengthRules = {DraftLengthRule::kFixed, DraftLengthRule::kHeuristic,
                                                 DraftLengthRule::kOptimal};

/// As written in a config and in reports.
constexpr std::string_view name_of(DraftLengthRule rule) {
  constexpr std::array<std::string_view, kDraftLengthRules.size()> kNames = {"fixed", "heuristic", "optimal"};
  return kNames[static_cast<std::size_t>(rule)];
}

/// RunConfig::Decode::hardware where none is named.
constexpr std::string_view kNoHardware = "none";

/// Values of RunConfig::weights_cache that are no folder.
constexpr std::string_view kNoWeightsCache = "off";
constexpr std::string_view kAutoWeightsCache = "auto";

/// Everything that a run is made of, as written in a YAML file (docs/configuration.md) and changed by --set. Rank 0 reads it and
/// broadcasts it; the other ranks never open the file.
struct RunConfig {
  std::filesystem::path target;
  std::filesystem::path draft;                 ///< empty: autoregressive only
  WeightsChoice weights;                       ///< of target and draft
  std::string weights_cache{kNoWeightsCache};  ///< or kAutoWeightsCache, or an absolute path
  DType dtype = DType::kBF16;
  std::optional<DType> draft_dtype;         ///< of the draft; nothing: as dtype
  std::string backend = "cpu";              ///< "cpu", "reference" or "cuda"
  Placement placement = Placement::kRank0;  ///< of the draft
  bool compare = false;
  AcceptanceChoice acceptance;
  /// Under each of them every prompt is decoded, the one whose text is wanted first; at least one (native), each once.
  std::vector<InterconnectChoice> interconnects = std::vector<InterconnectChoice>(1);
  std::vector<Prompt> prompts;

  struct Parallel {
    std::string transport = "auto";  ///< as make_communicator (parallel/transports.h) takes it
    std::optional<int> threads;      ///< compute threads a rank; none: as many as its cores (agree_threads.h)
    double deadline = 30.0;          ///< seconds without progress of an awaited rank
    bool agreement = true;           ///< compare the ranks once a round
    std::string isa = "auto";        ///< "auto" or a name of Isa: at most this one
    bool share_gpus = false;         ///< more ranks of a host than it has GPUs take them in turn
  } parallel;

  /// How a GPU computes, with `backend: cuda`.
  struct Cuda {
    bool graphs = true;          ///< replay passes that come again as CUDA graphs
    bool overlap = true;         ///< start products while the kernel before them ends
    bool fuse = true;            ///< activations within the products before them
    std::int64_t prefetch = 16;  ///< MiB of weights, at most, that the product before an all-reduce asks for
    CudaProducts matmul = CudaProducts::kTensor;
  } cuda;

  struct Decode {
    Method method = Method::kSpeculative;
    std::int64_t k = 4;  ///< the largest, where it adapts
    DraftLengthRule draft_length = DraftLengthRule::kFixed;
    std::string hardware{kNoHardware};  ///< the description that kOptimal computes with
    SamplingParams sampling;
    std::uint64_t seed = 0;
    std::int64_t max_new_tokens = 128;
    bool ignore_eos = false;
    std::vector<std::string> stop;
  } decode;

  /// Whether a rank of so many has the draft, or a part of it.
  bool drafts_on(int rank, int ranks) const {
    if (draft.empty()) return false;
    return drafts_together(placement) || rank == (placement == Placement::kDedicated ? ranks - 1 : 0);
  }
  DType type_of_draft() const { return draft_dtype.value_or(dtype); }
  /// Whether packed weights are kept for the next job: random ones never, and only the backend cpu packs on the host.
  bool caches_weights() const { return weights_cache != kNoWeightsCache && !weights.random && backend == "cpu"; }

  /// Whether both methods must say the same: both choose the argmax, and nothing forces what stands.
  bool texts_must_agree() const { return decode.sampling.greedy() && !acceptance.synthetic; }

  /// What decodes each prompt, the method whose text is wanted first.
  std::vector<Method> methods() const {
    if (!compare) {
      return {decode.method};
    }
    const bool speculative = decode.method == Method::kSpeculative;
    return {decode.method, speculative ? Method::kAutoregressive : Method::kSpeculative};
  }
};

}  // namespace specdec
