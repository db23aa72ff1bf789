#include <fmt/format.h>

#include <utility>

#include "models/byte_level_files.h"
#include "models/json_node.h"
#include "models/vocabulary_builder.h"

namespace specdec {
namespace {

void require_absent(const JsonNode& object, std::string_view key) {
  const auto node = object.find(key);
  if (node && !(node->is_string() && node->string().empty())) node->refuse("null");
}

void read_vocabulary(const JsonNode& model, VocabularyBuilder& builder) {
  for (const auto& [spelling, node] : model.at("vocab").members()) builder.add_token(spelling, node.id(), node.where());
}

void read_merges(const JsonNode& model, VocabularyBuilder& builder) {
  for (const JsonNode& node : model.at("merges").elements()) {
    if (node.is_array()) {
      const auto halves = node.elements();
      if (halves.size() != 2) node.refuse("two tokens");
      builder.add_merge(halves[0].string(), halves[1].string(), node.where());
      continue;
    }
    const std::string text = node.string();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      node.refuse("two tokens with a space between");
    builder.add_merge(text.substr(0, space), text.substr(space + 1), node.where());
  }
}

void read_added_tokens(const JsonNode& root, VocabularyBuilder& builder) {
  const auto list = root.find("added_tokens");
  if (!list) return;
  for (const JsonNode& node : list->elements()) {
    const AddedToken token = read_added_token(node, node.at("id").id());
    builder.add_added(token, node.flag("normalized", !token.special), node.where());
  }
}

/// The elements of a `Sequence` under `list`, or the node itself.
std::vector<JsonNode> sequence(const JsonNode& node, std::string_view list) {
  if (node.type() == "Sequence") return node.at(list).elements();
  return {node};
}

Regex read_split_pattern(const JsonNode& step) {
  if (const JsonNode behavior = step.at("behavior"); behavior.string() != "Isolated") behavior.refuse("\"Isolated\"");
  if (const auto invert = step.find("invert"); invert && invert->boolean()) invert->refuse("false");
  const JsonNode pattern = step.at("pattern");
  const JsonNode regex = pattern.at("Regex");
  return {regex.string(), regex.where()};
}

Pretokenizer read_pretokenizer(const JsonNode& root) {
  std::vector<Pretokenizer::Step> steps;
  bool byte_level = false;
  for (const JsonNode& node : sequence(root.at("pre_tokenizer"), "pretokenizers")) {
    const std::string type = node.type();
    Pretokenizer::Step step;
    if (byte_level) node.refuse("nothing after ByteLevel");
    if (type == "Split") {
      step.pattern.push_back(read_split_pattern(node));
    } else if (type == "ByteLevel") {
      byte_level = true;
      step.add_prefix_space = node.flag("add_prefix_space", true);
      if (node.flag("use_regex", true)) step.pattern.emplace_back(gpt2_pattern(), node.where());
    } else {
      node.at("type").refuse("\"ByteLevel\", or a \"Sequence\" of \"Split\" and \"ByteLevel\"");
    }
    steps.push_back(std::move(step));
  }
  if (!byte_level) root.at("pre_tokenizer").refuse("ByteLevel as the last step");
  return Pretokenizer(std::move(steps));
}

void read_template(const JsonNode& node, ByteLevelBpe::Parts& parts) {
  bool after_text = false;
  for (const JsonNode& item : node.at("single").elements()) {
    if (item.find("Sequence")) {
      if (after_text) item.refuse("one Sequence");
      after_text = true;
      continue;
    }
    const JsonNode name = item.at("SpecialToken").at("id");
    for (const JsonNode& id : node.at("special_tokens").at(name.string()).at("ids").elements()) {
      const Token token = id.id();
      if (static_cast<std::size_t>(token) >= parts.pieces.size() || !parts.pieces[token])
        id.refuse("the id of a token");
      (after_text ? parts.suffix : parts.prefix).push_back(token);
    }
  }
  if (!after_text) node.at("single").refuse("a template with a Sequence");
}

void read_post_processor(const JsonNode& root, ByteLevelBpe::Parts& parts) {
  const auto processor = root.find("post_processor");
  if (!processor) return;
  for (const JsonNode& node : sequence(*processor, "processors")) {
    const std::string type = node.type();
    if (type == "TemplateProcessing") {
      read_template(node, parts);
    } else if (type != "ByteLevel") {  // which moves offsets only
      node.at("type").refuse("\"ByteLevel\" or \"TemplateProcessing\"");
    }
  }
}

void check_normalizer(const JsonNode& root) {
  const auto normalizer = root.find("normalizer");
  if (!normalizer) return;
  for (const JsonNode& node : sequence(*normalizer, "normalizers")) node.at("type").refuse("no normalizer");
}

void check_decoder(const JsonNode& root) {
  for (const JsonNode& node : sequence(root.at("decoder"), "decoders")) {
    if (node.type() != "ByteLevel") node.at("type").refuse("\"ByteLevel\"");
  }
}

}  // namespace

ByteLevelBpe::Parts read_tokenizer_json(const std::filesystem::path& file) {
  const JsonNode root = JsonNode::parse_file(file);
  const JsonNode model = root.at("model");
  if (const auto type = model.find("type"); type && type->string() != "BPE") type->refuse("\"BPE\"");
  if (const auto fallback = model.find("byte_fallback"); fallback && fallback->boolean())
    fallback->refuse("false (byte-level BPE)");
  for (const std::string_view key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    require_absent(model, key);
  check_normalizer(root);
  check_decoder(root);

  VocabularyBuilder builder;
  read_vocabulary(model, builder);
  read_merges(model, builder);
  read_added_tokens(root, builder);
  std::optional<std::string> unknown;
  if (const auto node = model.find("unk_token")) unknown = node->string();
  ByteLevelBpe::Parts parts =
      builder.build(model.flag("ignore_merges", false), unknown, model.flag("fuse_unk", false), model.where());
  parts.pretokenizer = read_pretokenizer(root);
  read_post_processor(root, parts);
  return parts;
}

}  // namespace specdec
