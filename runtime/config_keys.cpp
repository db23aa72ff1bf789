#include "runtime/config_keys.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "backend/error.h"
#include "runtime/config_interconnects.h"
#include "runtime/config_prompts.h"
#include "runtime/interconnect_json.h"
#include "runtime/transport_choice.h"

namespace specdec {
namespace {

using nlohmann::json;

/// The shortest decimal of a float: 0.8 and not 0.800000012.
double as_written(float value) { return std::stod(fmt::format("{}", value)); }

template <typename Access>
ConfigKey base(std::string name, std::string type, std::string accepts, std::string help, Access access) {
  ConfigKey key;
  key.name = std::move(name);
  key.type = std::move(type);
  key.accepts = std::move(accepts);
  key.help = std::move(help);
  key.write = [access](const RunConfig& config) -> json { return access(const_cast<RunConfig&>(config)); };
  key.read = [access](RunConfig& config, const json& value) { value.get_to(access(config)); };
  key.default_text = key.write(RunConfig{}).dump();
  return key;
}

template <typename Access, typename Integer = std::remove_reference_t<std::invoke_result_t<Access, RunConfig&>>>
ConfigKey integer(std::string name, Integer low, Integer high, std::string help, Access access) {
  ConfigKey key = base(std::move(name), "integer", integer_range(low, high), std::move(help), access);
  key.assign = [=, full = key.name](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    access(config) = read_integer(place, node, full, low, high);
  };
  return key;
}

/// `accepts` says in words what `valid` tests; it must refuse NaN.
template <typename Access, typename Valid>
ConfigKey number(std::string name, std::string accepts, Valid valid, std::string help, Access access) {
  using Real = std::remove_reference_t<std::invoke_result_t<Access, RunConfig&>>;
  ConfigKey key = base(std::move(name), "number", std::move(accepts), std::move(help), access);
  key.write = [access](const RunConfig& config) -> json {
    const Real value = access(const_cast<RunConfig&>(config));
    if constexpr (std::is_same_v<Real, float>) return as_written(value);
    return value;
  };
  key.default_text = key.write(RunConfig{}).dump();
  key.assign = [=, full = key.name, expected = key.accepts](RunConfig& config, const YAML::Node& node,
                                                            const YamlPlace& place) {
    access(config) = static_cast<Real>(read_number(place, node, full, expected, valid));
  };
  return key;
}

template <typename Access>
ConfigKey boolean(std::string name, std::string help, Access access) {
  ConfigKey key = base(std::move(name), "boolean", kBoolean, std::move(help), access);
  key.assign = [=, full = key.name](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    access(config) = read_boolean(place, node, full);
  };
  return key;
}

/// A word of a fixed list; `get` and `set` speak in words.
template <typename Get, typename Set>
ConfigKey choice(std::string name, std::vector<std::string> words, std::string help, Get get, Set set) {
  ConfigKey key;
  key.name = std::move(name);
  key.type = "word";
  key.accepts = word_list(words);
  key.help = std::move(help);
  key.plain = true;
  key.write = [get](const RunConfig& config) -> json { return std::string(get(config)); };
  key.read = [set](RunConfig& config, const json& value) { set(config, value.get<std::string>()); };
  key.default_text = std::string(get(RunConfig{}));
  key.assign = [=, full = key.name](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    set(config, words[read_word(place, node, full, words)]);
  };
  return key;
}

template <typename Access>
ConfigKey word(std::string name, std::vector<std::string> words, std::string help, Access access) {
  return choice(
      std::move(name), std::move(words), std::move(help),
      [access](const RunConfig& config) { return access(const_cast<RunConfig&>(config)); },
      [access](RunConfig& config, const std::string& value) { access(config) = value; });
}

template <typename Access>
ConfigKey directory(std::string name, bool optional, std::string help, Access access) {
  ConfigKey key;
  key.name = std::move(name);
  key.type = "path";
  key.accepts = optional ? "the directory of a model, or nothing" : "the directory of a model";
  key.help = std::move(help);
  key.plain = true;
  key.default_text = "none";
  key.write = [access](const RunConfig& config) -> json { return access(const_cast<RunConfig&>(config)).string(); };
  key.read = [access](RunConfig& config, const json& value) { access(config) = value.get<std::string>(); };
  key.assign = [=, full = key.name, accepts = key.accepts](RunConfig& config, const YAML::Node& node,
                                                           const YamlPlace& place) {
    const bool nothing = node.IsNull() || (node.IsScalar() && node.Scalar().empty());
    if (nothing ? !optional : !node.IsScalar()) {
      reject(place, node, full, nothing ? "nothing" : describe(node), accepts);
    }
    const std::string path = nothing ? "" : node.Scalar();
    if (path.find('\0') != std::string::npos) reject(place, node, full, "a path with a NUL byte", accepts);
    access(config) = path;
  };
  return key;
}

ConfigKey threads() {
  constexpr int kMost = 256;
  static constexpr const char* kAuto = "auto";
  ConfigKey key;
  key.name = "parallel.threads";
  key.type = "integer or word";
  key.default_text = kAuto;
  key.accepts = fmt::format("auto, or {}", integer_range(1, kMost));
  key.help =
      "Compute threads a rank. `auto`: as many as it has cores to itself, so that ranks times threads are the cores of "
      "a host (mpirun binds one or two "
      "ranks to a core each unless it is told `--bind-to none`).";
  key.write = [](const RunConfig& config) -> json {
    return config.parallel.threads ? json(*config.parallel.threads) : json(kAuto);
  };
  key.read = [](RunConfig& config, const json& value) {
    config.parallel.threads = value.is_string() ? std::nullopt : std::optional(value.get<int>());
  };
  key.assign = [accepts = key.accepts, name = key.name](RunConfig& config, const YAML::Node& node,
                                                        const YamlPlace& place) {
    if (node.IsScalar() && node.Scalar() == kAuto) {
      config.parallel.threads.reset();
      return;
    }
    const std::optional<int> threads = parse_number<int>(number_text(node));
    if (!threads || *threads < 1 || *threads > kMost) reject(place, node, name, describe(node), accepts);
    config.parallel.threads = threads;
  };
  return key;
}

ConfigKey weights_cache() {
  ConfigKey key =
      base("weights_cache", "word or path", "off, auto, or the absolute path of a folder",
           "With `backend: cpu`, a folder that keeps packed weights, so that the next start reads them instead of "
           "packing; what does not fit the checkpoint is packed again, and deleting files there costs time only. "
           "`auto`: `$XDG_CACHE_HOME/specdec_dist`, or `~/.cache/specdec_dist`. Random weights are not kept.",
           [](RunConfig& c) -> std::string& { return c.weights_cache; });
  key.plain = true;
  key.default_text = kNoWeightsCache;
  key.assign = [accepts = key.accepts](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    const std::string value = node.IsScalar() ? node.Scalar() : "";
    const bool path = value.starts_with('/') && value.find('\0') == std::string::npos;
    if (!path && value != kNoWeightsCache && value != kAutoWeightsCache) {
      reject(place, node, "weights_cache", describe(node), accepts);
    }
    config.weights_cache = value;
  };
  return key;
}

ConfigKey hardware() {
  ConfigKey key =
      base("decode.hardware", "name or path", "none, or a description of hardware (docs/study.md)",
           "What a loop of K drafted tokens takes, for `decode.draft_length: optimal`. `none`: more rows cost "
           "what they typically do with the instruction set, and a drafted token the share of the "
           "target's pass that the draft's weights are of those of a rank. Messages count as a modelled "
           "interconnect has them, natively as the hardware does, `none` not at all.",
           [](RunConfig& c) -> std::string& { return c.decode.hardware; });
  key.plain = true;
  key.default_text = kNoHardware;
  key.assign = [accepts = key.accepts](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    if (!node.IsScalar() || node.Scalar().empty() || node.Scalar().find('\0') != std::string::npos) {
      reject(place, node, "decode.hardware", describe(node), accepts);
    }
    config.decode.hardware = node.Scalar();
  };
  return key;
}

ConfigKey stop_strings() {
  ConfigKey key = base("decode.stop", "list of strings", "a list of non-empty strings",
                       "Generation ends before the first of these strings appears in the text.",
                       [](RunConfig& c) -> std::vector<std::string>& { return c.decode.stop; });
  key.assign = [](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    std::vector<std::string> stop;
    const auto add = [&](const YAML::Node& item) {
      if (!item.IsScalar() || item.Scalar().empty()) {
        reject(place, item, "decode.stop", item.IsScalar() ? "an empty string" : describe(item),
               "a list of non-empty strings");
      }
      stop.push_back(item.Scalar());
    };
    if (node.IsSequence()) {
      for (const auto& item : node) add(item);
    } else {
      add(node);
    }
    config.decode.stop = std::move(stop);
  };
  return key;
}

ConfigKey prompt_list() {
  ConfigKey key;
  key.name = "prompts";
  key.type = "list of prompts";
  key.default_text = "none";
  key.accepts = "strings, or maps with one of `text`, `file`, `ids`, `random`";
  key.help =
      "What to continue, one after another. --prompt, --prompt-file, --prompt-ids and --prompt-random replace the "
      "list.";
  key.assign = [](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    config.prompts = read_prompts(node, place);
  };
  key.write = [](const RunConfig& config) -> json {
    json list = json::array();
    for (const Prompt& prompt : config.prompts) {
      list.push_back(prompt.random > 0 ? json{{"random", prompt.random}}
                     : prompt.ids      ? json{{"ids", *prompt.ids}}
                                       : json{{"text", prompt.text}});
    }
    return list;
  };
  key.read = [](RunConfig& config, const json& value) {
    config.prompts.clear();
    for (const json& item : value) {
      Prompt prompt;
      if (item.contains("random")) {
        prompt.random = item.at("random").get<std::int64_t>();
      } else if (item.contains("ids")) {
        prompt.ids = item.at("ids").get<std::vector<Token>>();
      } else {
        prompt.text = item.at("text").get<std::string>();
      }
      config.prompts.push_back(std::move(prompt));
    }
  };
  return key;
}

ConfigKey interconnect_list() {
  ConfigKey key;
  key.name = "interconnect";
  key.type = "name or list of names";
  key.default_text = kNativeInterconnect;
  key.accepts = "`native`, a preset of `configs/interconnects`, the path of such a file, or a list of them";
  key.help =
      "What messages between ranks take: the machine's own time, or at least that of a described interconnect "
      "(`modelled` in all output). With a list everything runs under each of them.";
  key.assign = [](RunConfig& config, const YAML::Node& node, const YamlPlace& place) {
    config.interconnects = read_interconnects(node, place);
  };
  key.write = [](const RunConfig& config) -> json {
    json list = json::array();
    for (const InterconnectChoice& choice : config.interconnects) list.push_back(interconnect_json(choice));
    return list;
  };
  key.read = [](RunConfig& config, const json& value) {
    config.interconnects.clear();
    for (const json& item : value) config.interconnects.push_back(interconnect_from_json(item));
  };
  return key;
}

/// Of draft_dtype, where there is none.
constexpr std::string_view kAsTarget = "as_target";

std::vector<ConfigKey> make_keys() {
  using std::int32_t;
  using std::int64_t;
  std::vector<ConfigKey> keys;
  keys.push_back(directory("target", false, "The large model, in Hugging Face's layout.",
                           [](RunConfig& c) -> std::filesystem::path& { return c.target; }));
  keys.push_back(directory("draft", true, "The small model that proposes; it must share the target's tokenizer.",
                           [](RunConfig& c) -> std::filesystem::path& { return c.draft; }));
  keys.push_back(choice(
      "weights", {"checkpoint", "random"},
      "`random`: weights are made and not read, so that a `config.json` alone is a model, whose cost can be measured "
      "and whose text means "
      "nothing; labelled in all output.",
      [](const RunConfig& c) { return c.weights.random ? "random" : "checkpoint"; },
      [](RunConfig& c, const std::string& v) { c.weights.random = v == "random"; }));
  keys.push_back(integer("weights_seed", std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
                         "Of random weights; the same seed gives the same models on any number of ranks.",
                         [](RunConfig& c) -> std::uint64_t& { return c.weights.seed; }));
  keys.push_back(weights_cache());
  keys.push_back(choice(
      "dtype", weight_type_names(),
      "Type of the weights in memory; sums are always fp32. `f16` is for the backends cuda and reference, `int8` for "
      "cpu "
      "and reference: it is half of bf16 and changes what a model says, by how much is measured in docs/numerics.md.",
      [](const RunConfig& c) { return name_of(c.dtype); },
      [](RunConfig& c, const std::string& v) { c.dtype = dtype_named(v); }));
  std::vector<std::string> of_draft = weight_type_names();
  of_draft.emplace_back(kAsTarget);
  keys.push_back(choice(
      "draft_dtype", std::move(of_draft), "That of the draft's weights; `as_target`: what `dtype` says.",
      [](const RunConfig& c) { return c.draft_dtype ? name_of(*c.draft_dtype) : kAsTarget; },
      [](RunConfig& c, const std::string& v) {
        c.draft_dtype = v == kAsTarget ? std::nullopt : std::optional(dtype_named(v));
      }));
  keys.push_back(choice(
      "placement", names_of(kPlacements),
      "Where the draft runs: `rank0`, on one rank that tells the others; `replicated`, whole on each, so that nobody "
      "is told; `sharded`, cut over all as the target is; `dedicated`, on the last rank, which holds nothing of the "
      "target "
      "and drafts the next block while the others score this one. The text is the same.",
      [](const RunConfig& c) { return name_of(c.placement); },
      [](RunConfig& c, const std::string& v) { c.placement = value_named(kPlacements, v); }));
  keys.push_back(word("backend", {"cpu", "reference", "cuda"},
                      "What a rank computes with; `reference` is naive and slow, `cuda` needs a GPU and a build for it "
                      "(docs/gpu.md).",
                      [](RunConfig& c) -> std::string& { return c.backend; }));
  keys.push_back(boolean("compare", "Run autoregressive and speculative decoding on the same prompts and compare.",
                         [](RunConfig& c) -> bool& { return c.compare; }));
  keys.back().default_text = "true with a draft, unless decode.method is autoregressive";
  keys.push_back(choice(
      "acceptance", {"models", "synthetic"},
      "What decides whether a drafted token stands. `synthetic`: a stated rate and not what the models say, so "
      "that time can be studied before there are models; the text is not the target's; labelled in all output.",
      [](const RunConfig& c) { return c.acceptance.synthetic ? "synthetic" : "models"; },
      [](RunConfig& c, const std::string& v) { c.acceptance.synthetic = v == "synthetic"; }));
  keys.push_back(number(
      "synthetic.alpha", "a number from 0 to 1", [](double v) { return v >= 0 && v <= 1; },
      "With `acceptance: synthetic`, the rate: of the drafted positions that are reached, the share that stands.",
      [](RunConfig& c) -> double& { return c.acceptance.alpha; }));
  keys.push_back(interconnect_list());
  keys.push_back(prompt_list());

  keys.push_back(
      word("parallel.transport", transport_names(),
           "How ranks talk: `shm` over shared memory, `mpi` over MPI, `hier` over shared memory inside hosts "
           "and MPI between them, all with the same bits; `mpi-fast` sums in MPI's own order. `auto`: `self` "
           "for one rank, `shm` on one host, `hier` where neighbouring ranks share hosts in twos, fours, "
           "..., else `mpi`. With `backend: cuda` also between GPUs: `nccl` and, on one host, `ipc` with "
           "the same bits, `nccl-fast` in NCCL's own order.",
           [](RunConfig& c) -> std::string& { return c.parallel.transport; }));
  keys.push_back(threads());
  keys.push_back(number(
      "parallel.deadline", "a number of seconds from 0.1 to 86400", [](double v) { return v >= 0.1 && v <= 86400; },
      "Seconds without progress of an awaited rank after which the job ends.",
      [](RunConfig& c) -> double& { return c.parallel.deadline; }));
  keys.push_back(
      boolean("parallel.agreement",
              "Compare token history, cache and configuration of all ranks once a round, and end the job where "
              "they differ.",
              [](RunConfig& c) -> bool& { return c.parallel.agreement; }));
  keys.push_back(word("parallel.isa", {"auto", "scalar", "avx2", "avx512", "avx512_bf16", "amx_bf16"},
                      "At most this instruction set; all ranks use the weakest of theirs.",
                      [](RunConfig& c) -> std::string& { return c.parallel.isa; }));
  keys.push_back(boolean("parallel.share_gpus",
                         "With `backend: cuda`, more ranks of a host than it has GPUs take them in turn.",
                         [](RunConfig& c) -> bool& { return c.parallel.share_gpus; }));
  keys.push_back(boolean("cuda.graphs",
                         "With `backend: cuda`, replay passes that come again as CUDA graphs; off, every kernel is "
                         "launched by itself.",
                         [](RunConfig& c) -> bool& { return c.cuda.graphs; }));
  keys.push_back(
      boolean("cuda.overlap",
              "With `backend: cuda`, start products while the kernel before them ends, on GPUs that can (compute "
              "capability 9.0 and later).",
              [](RunConfig& c) -> bool& { return c.cuda.overlap; }));
  keys.push_back(
      boolean("cuda.fuse",
              "With `backend: cuda` and `cuda.matmul: tensor`, gated products do their activation themselves; "
              "off, a kernel after them does.",
              [](RunConfig& c) -> bool& { return c.cuda.fuse; }));
  keys.push_back(integer("cuda.prefetch", int64_t{0}, int64_t{1024},
                         "With several ranks and `backend: cuda`, at most so many MiB of the weights that come after "
                         "an all-reduce are asked for by the product before it, into the second-level cache; 0: none. "
                         "Not with `cuda.matmul: cublas` or `cpu_order`.",
                         [](RunConfig& c) -> int64_t& { return c.cuda.prefetch; }));
  keys.push_back(choice(
      "cuda.matmul", {"tensor", "cublas", "vector", "cpu_order"},
      "With `backend: cuda`, what multiplies with weights of bf16 and f16: our kernel for tensor cores, `cublas`, our "
      "kernel for vector units (up to 3 rows), or the order of the CPU's vector kernels. With `cublas` and `vector` a "
      "row's bits depend on how many rows there are, so that speculative and autoregressive text may differ.",
      [](const RunConfig& c) { return name_of(c.cuda.matmul); },
      [](RunConfig& c, const std::string& v) { c.cuda.matmul = cuda_products_named(v); }));

  keys.push_back(choice(
      "decode.method", {"speculative", "autoregressive"}, "Which decoding runs when nothing is compared.",
      [](const RunConfig& c) { return name_of(c.decode.method); },
      [](RunConfig& c, const std::string& v) {
        c.decode.method = v == "speculative" ? Method::kSpeculative : Method::kAutoregressive;
      }));
  keys.back().default_text = "speculative with a draft, else autoregressive";
  keys.push_back(integer("decode.k", int64_t{0}, int64_t{256},
                         "Tokens that the draft proposes in a round; at most, where that adapts.",
                         [](RunConfig& c) -> int64_t& { return c.decode.k; }));
  keys.push_back(choice(
      "decode.draft_length", names_of(kDraftLengthRules),
      "How many tokens are drafted. `fixed`: decode.k; `heuristic`: two more after a round that stood in full, one "
      "fewer after a rejection, 1 to decode.k; `optimal`: what yields most tokens for the time of a loop at the "
      "running "
      "estimate of alpha, 0 to decode.k. All exact and repeatable.",
      [](const RunConfig& c) { return name_of(c.decode.draft_length); },
      [](RunConfig& c, const std::string& v) { c.decode.draft_length = value_named(kDraftLengthRules, v); }));
  keys.push_back(hardware());
  keys.push_back(number(
      "decode.temperature", "0 (greedy), or a number from 0.001 to 100",
      [](double v) { return v == 0 || (v >= 0.001 && v <= 100); }, "Divides the logits; 0 always takes the likeliest.",
      [](RunConfig& c) -> float& { return c.decode.sampling.temperature; }));
  keys.push_back(integer("decode.top_k", int32_t{0}, std::numeric_limits<int32_t>::max(),
                         "Sample among this many likeliest tokens; 0: all.",
                         [](RunConfig& c) -> int32_t& { return c.decode.sampling.top_k; }));
  keys.push_back(number(
      "decode.top_p", "a number above 0, at most 1", [](double v) { return static_cast<float>(v) > 0 && v <= 1; },
      "Sample among the likeliest tokens that together reach this probability; 1: all.",
      [](RunConfig& c) -> float& { return c.decode.sampling.top_p; }));
  keys.push_back(integer("decode.seed", std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
                         "Of all random numbers; the same seed gives the same text.",
                         [](RunConfig& c) -> std::uint64_t& { return c.decode.seed; }));
  keys.push_back(integer("decode.max_new_tokens", int64_t{1}, int64_t{1} << 20, "Tokens to generate for each prompt.",
                         [](RunConfig& c) -> int64_t& { return c.decode.max_new_tokens; }));
  keys.push_back(boolean("decode.ignore_eos", "Go on past the model's end-of-text token.",
                         [](RunConfig& c) -> bool& { return c.decode.ignore_eos; }));
  keys.push_back(stop_strings());
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

const ConfigKey* find_key(std::string_view name) {
  const auto& keys = config_keys();
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.name == name; });
  return at == keys.end() ? nullptr : &*at;
}

const KeyNames& config_key_names() {
  static const KeyNames names = [] {
    std::vector<std::string> all;
    for (const ConfigKey& key : config_keys()) all.push_back(key.name);
    return KeyNames(std::move(all));
  }();
  return names;
}

std::string configuration_page() {
  std::string page =
      "# Configuration\n\n"
      "Generated by `specdec_dist --print-keys`; a test compares it with the code.\n\n"
      "A run is one YAML file (`--config FILE`). `--set key=value` changes one key, `--target`, `--draft` "
      "and the `--prompt` flags go over both. Sections nest (`decode:` with `k: 4` under it) or are written "
      "with a dot (`decode.k: 4`). An unknown or doubled key, a value of another type or out of range ends "
      "the program with exit code 2 and one line that names file and line.\n\n"
      "A config that does not begin with a slash or a dot is looked up in `.`, `configs/` and the installed "
      "`share/specdec/configs`; the relative path of a model in the config file's directory, the current "
      "one, `share/specdec` and `share/specdec/assets`; the relative path of an interconnect's file, which "
      "has a slash or ends with `.yaml`, in the config file's directory and the current one. Without a "
      "slash it is looked up where a preset's name is: in `.`, `configs/interconnects/` and the installed "
      "`share/specdec/configs/interconnects`.\n\n"
      "| key | type | default | accepts | meaning |\n|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys()) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, key.type, key.default_text, key.accepts, key.help);
  }
  page +=
      "\nA prompt is a string, or a map with one key: `text: ...`; `file: PATH`, the whole file byte for byte, "
      "relative to the "
      "config file; `ids: [3, 14, 15]`, token ids, for models without a tokenizer; `random: 512`, that many ids drawn "
      "with `decode.seed`, where only "
      "the length matters.\n";
  return page;
}

}  // namespace specdec
