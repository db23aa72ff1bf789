#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/error.h"
#include "models/byte_level_files.h"
#include "models/json_node.h"
#include "models/vocabulary_builder.h"

namespace specdec {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

void read_merges(const std::filesystem::path& file, VocabularyBuilder& builder) {
  const std::string text = read_tokenizer_file(file);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    const std::string where = fmt::format("{}: line {}", file.string(), number);
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      throw_bad_input(fmt::format("{}: found '{}', expected two tokens with a space between", where, line));
    }
    builder.add_merge(line.substr(0, space), line.substr(space + 1), where);
  }
}

/// The added tokens of GPT-2's files, in the order in which `transformers` gives them ids.
class AddedTokenFiles {
 public:
  AddedTokenFiles(const std::filesystem::path& directory, VocabularyBuilder& builder) : builder_(builder) {
    const auto present = [&](std::string_view name) { return std::filesystem::exists(directory / name); };
    if (present("added_tokens.json")) read_ids(JsonNode::parse_file(directory / "added_tokens.json"));
    if (present("tokenizer_config.json")) {
      const JsonNode config = JsonNode::parse_file(directory / "tokenizer_config.json");
      read_decoder(config);
      read_named(config);
    }
    if (present("special_tokens_map.json")) read_named(JsonNode::parse_file(directory / "special_tokens_map.json"));
    if (const auto id = builder_.find(std::string(kEndOfText))) {
      add({*id, std::string(kEndOfText), true}, "special tokens");
    }
  }

 private:
  void read_ids(const JsonNode& file) {
    std::vector<std::pair<Token, std::string>> tokens;
    for (const auto& [content, node] : file.members()) tokens.emplace_back(node.id(), content);
    std::ranges::sort(tokens);
    for (const auto& [id, content] : tokens) add({id, content}, file.where());
  }

  void read_decoder(const JsonNode& config) {
    const auto decoder = config.find("added_tokens_decoder");
    if (!decoder) return;
    for (const auto& [key, node] : decoder->members()) add(read_added_token(node, node.id_of_key(key)), node.where());
  }

  void read_named(const JsonNode& file) {
    for (const std::string_view key :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      if (const auto node = file.find(key)) read_special(*node);
    }
    if (const auto list = file.find("additional_special_tokens")) {
      for (const JsonNode& node : list->elements()) read_special(node);
    }
  }

  void read_special(const JsonNode& node) {
    const std::string content = node.is_string() ? node.string() : node.at("content").string();
    const Token id = builder_.find(content).value_or(builder_.size());
    AddedToken token = node.is_string() ? AddedToken{id, content} : read_added_token(node, id);
    token.special = true;
    add(token, node.where());
  }

  void add(const AddedToken& token, const std::string& where) {
    if (std::ranges::find(seen_, token.content) != seen_.end()) return;
    seen_.push_back(token.content);
    builder_.add_added(token, false, where);
  }

  VocabularyBuilder& builder_;
  std::vector<std::string> seen_;
};

}  // namespace

ByteLevelBpe::Parts read_vocab_and_merges(const std::filesystem::path& directory) {
  VocabularyBuilder builder;
  const JsonNode vocabulary = JsonNode::parse_file(directory / "vocab.json");
  for (const auto& [spelling, node] : vocabulary.members()) builder.add_token(spelling, node.id(), node.where());
  if (builder.size() == 0) vocabulary.refuse("tokens and their ids");
  read_merges(directory / "merges.txt", builder);
  const AddedTokenFiles added(directory, builder);

  bool prefix_space = false;
  std::optional<Token> bos;
  if (std::filesystem::exists(directory / "tokenizer_config.json")) {
    const JsonNode config = JsonNode::parse_file(directory / "tokenizer_config.json");
    prefix_space = config.flag("add_prefix_space", false);
    if (config.flag("add_bos_token", false)) {
      const auto node = config.find("bos_token");
      if (!node) {
        bos = builder.find(std::string(kEndOfText));
      } else {
        bos = builder.find(node->is_string() ? node->string() : node->at("content").string());
      }
      if (!bos) config.refuse("a bos_token of the vocabulary, since add_bos_token is true");
    }
  }
  ByteLevelBpe::Parts parts = builder.build(false, std::nullopt, false, vocabulary.where());
  std::vector<Pretokenizer::Step> steps(1);
  steps[0].add_prefix_space = prefix_space;
  steps[0].pattern.emplace_back(gpt2_pattern(), vocabulary.where());
  parts.pretokenizer = Pretokenizer(std::move(steps));
  if (bos) parts.prefix.push_back(*bos);
  return parts;
}

}  // namespace specdec
