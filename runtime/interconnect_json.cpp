#include "runtime/interconnect_json.h"

#include <nlohmann/json.hpp>

#include "backend/error.h"

namespace specdec {
namespace {

using nlohmann::json;

json link_json(const Link& link) {
  return {{"algorithm", name_of(link.algorithm)},
          {"latency_seconds", link.latency},
          {"bandwidth_bytes_per_second", link.bandwidth}};
}

LinkAlgorithm algorithm_named(const std::string& name) {
  for (const LinkAlgorithm algorithm : kLinkAlgorithms) {
    if (name == name_of(algorithm)) return algorithm;
  }
  throw Error(ErrorKind::kInternal, "interconnect_from_json: no algorithm " + name);
}

Link link_from_json(const json& in) {
  return {.algorithm = algorithm_named(in.at("algorithm")),
          .latency = in.at("latency_seconds"),
          .bandwidth = in.at("bandwidth_bytes_per_second")};
}

json model_json(const Interconnect& model) {
  return {{"source", model.source},
          {"link", link_json(model.link)},
          {"node", model.node ? link_json(*model.node) : json()},
          {"ranks_per_node", model.ranks_per_node},
          {"ranks", model.ranks ? json(*model.ranks) : json()},
          {"overhead_seconds", model.overhead},
          {"multiplier", model.multiplier},
          {"jitter",
           {{"sigma", model.jitter.sigma},
            {"tail_probability", model.jitter.tail_probability},
            {"tail_mean_seconds", model.jitter.tail_mean}}}};
}

Interconnect model_from_json(const json& in) {
  Interconnect model;
  model.source = in.at("source");
  model.link = link_from_json(in.at("link"));
  if (!in.at("node").is_null()) model.node = link_from_json(in.at("node"));
  model.ranks_per_node = in.at("ranks_per_node");
  if (!in.at("ranks").is_null()) model.ranks = in.at("ranks").get<int>();
  model.overhead = in.at("overhead_seconds");
  model.multiplier = in.at("multiplier");
  const json& jitter = in.at("jitter");
  model.jitter = {.sigma = jitter.at("sigma"),
                  .tail_probability = jitter.at("tail_probability"),
                  .tail_mean = jitter.at("tail_mean_seconds")};
  return model;
}

}  // namespace

json interconnect_json(const InterconnectChoice& choice) {
  return {
      {"name", name_of(choice)}, {"modelled", choice.has_value()}, {"model", choice ? model_json(*choice) : json()}};
}

InterconnectChoice interconnect_from_json(const json& in) {
  if (in.at("model").is_null()) return std::nullopt;
  Interconnect model = model_from_json(in.at("model"));
  model.name = in.at("name");
  return model;
}

}  // namespace specdec
