#include "models/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "backend/error.h"
#include "models/byte_level_bpe.h"
#include "models/json_node.h"
#include "models/sentencepiece_charsmap.h"
#include "models/utf8.h"

namespace specdec {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, how pieces spell a space

std::string with_spaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const std::size_t at = std::min(piece.find(kSpace), piece.size());
    text += piece.substr(0, at);
    piece.remove_prefix(at);
    if (piece.empty()) break;
    text += ' ';
    piece.remove_prefix(kSpace.size());
  }
  return text;
}

/// The byte of a piece <0xNN>.
char byte_of(const std::string& piece, const std::string& where) {
  unsigned value = 256;
  if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (value > 255) throw_bad_input(fmt::format("{}: found byte piece '{}', expected <0x00> to <0xFF>", where, piece));
  return static_cast<char>(value);
}

}  // namespace

/// Two processors on one model: as it is, and without the space that SentencePiece puts before a text.
class SentencePieceTokenizer::Library {
 public:
  explicit Library(const std::filesystem::path& file) : file_(file.string()) {
    const std::string model = read_tokenizer_file(file);
    check_charsmap(model, file_);
    load(as_is, model);
    // Protobuf merges a message that is written twice, the last value winning. This is ModelProto.normalizer_spec
    // (field 3) with add_dummy_prefix (field 3) false.
    load(no_prefix, model + std::string("\x1A\x02\x18\x00", 4));
  }

  std::vector<int> encode(std::string_view text, bool prefix) const {
    std::vector<int> ids;
    const auto status = (prefix ? as_is : no_prefix).Encode(text, &ids);
    if (!status.ok()) throw_bad_input(fmt::format("{}: cannot encode the text: {}", file_, status.ToString()));
    return ids;
  }
  std::string decode(const std::vector<int>& ids) const {
    std::string text;
    const auto status = as_is.Decode(ids, &text);
    if (!status.ok()) throw_bad_input(fmt::format("{}: cannot decode: {}", file_, status.ToString()));
    return text;
  }
  const std::string& file() const { return file_; }

  sentencepiece::SentencePieceProcessor as_is;
  sentencepiece::SentencePieceProcessor no_prefix;

 private:
  void load(sentencepiece::SentencePieceProcessor& processor, const std::string& model) const {
    const auto status = processor.LoadFromSerializedProto(model);
    if (status.ok() && processor.GetPieceSize() > 0) return;
    throw_bad_input(fmt::format("{}: found {} bytes that are no SentencePiece model, expected one{}{}", file_,
                                model.size(), status.ok() ? "" : ": ", status.ok() ? "" : status.ToString()));
  }

  std::string file_;
};

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& directory)
    : library_(std::make_unique<Library>(directory / "tokenizer.model")) {
  read_pieces();
  read_companions(directory);
  find_space_rule();
  added_ = AddedTokens(std::exchange(found_in_text_, {}));
  fingerprint_ = hash_pieces(pieces_);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::read_pieces() {
  const auto& model = library_->as_is;
  for (Token id = 0; id < model.GetPieceSize(); ++id) {
    const std::string& piece = model.IdToPiece(id);
    const bool control = model.IsControl(id) || model.IsUnknown(id);
    const bool byte = model.IsByte(id);
    if (byte) {
      pieces_.emplace_back(std::string(1, byte_of(piece, library_->file())));
    } else {
      pieces_.emplace_back(control ? piece : with_spaces(piece));
    }
    verbatim_.push_back(control || byte);
    special_.push_back(control);
    if (control) found_in_text_.push_back({id, piece, true});
  }
  if (model.bos_id() >= 0) bos_ = model.bos_id();
  if (model.eos_id() >= 0) eos_ = model.eos_id();
}

void SentencePieceTokenizer::read_companions(const std::filesystem::path& directory) {
  bool add_bos = true;
  bool add_eos = false;
  if (std::filesystem::exists(directory / "added_tokens.json")) {
    const JsonNode file = JsonNode::parse_file(directory / "added_tokens.json");
    for (const auto& [content, node] : file.members()) add({node.id(), content}, node.where());
  }
  if (std::filesystem::exists(directory / "tokenizer_config.json")) {
    const JsonNode config = JsonNode::parse_file(directory / "tokenizer_config.json");
    if (const auto decoder = config.find("added_tokens_decoder")) {
      for (const auto& [key, node] : decoder->members()) add(read_added_token(node, node.id_of_key(key)), node.where());
    }
    legacy_ = config.flag("legacy", false);
    add_bos = config.flag("add_bos_token", true);
    add_eos = config.flag("add_eos_token", false);
  }
  if (!add_bos) bos_.reset();
  if (!add_eos) eos_.reset();
}

void SentencePieceTokenizer::add(AddedToken token, const std::string& where) {
  const auto index = static_cast<std::size_t>(token.id);
  if (index >= pieces_.size()) {
    pieces_.resize(index + 1);
    verbatim_.resize(index + 1);
    special_.resize(index + 1);
  }
  if (const std::string known = pieces_[index].value_or(token.content); known != token.content) {
    throw_bad_input(fmt::format("{}: found id {} for '{}', which '{}' has already, expected one token an id", where,
                                token.id, token.content, known));
  }
  pieces_[index] = token.content;
  verbatim_[index] = true;
  special_[index] = special_[index] || token.special;
  const bool listed =
      std::ranges::any_of(found_in_text_, [&](const AddedToken& other) { return other.id == token.id; });
  if (!listed && !token.content.empty()) found_in_text_.push_back(std::move(token));
}

void SentencePieceTokenizer::find_space_rule() {
  const auto& model = library_->as_is;
  const int space = model.PieceToId(kSpace);
  for (Token id = 0; id < model.GetPieceSize(); ++id) {
    const std::string word = pieces_[id].value_or("");
    if (verbatim_[id] || word.size() < 2 || word[0] != ' ' || word[1] == ' ') continue;
    drop_first_space_ = !library_->decode({id}).starts_with(' ');
    if (!model.IsUnknown(space)) drop_all_spaces_ = !library_->decode({space, id}).starts_with(' ');
    return;
  }
}

std::vector<Token> SentencePieceTokenizer::encode(std::string_view text, bool add_special) const {
  require_utf8(text);
  std::vector<Token> out;
  if (add_special && bos_) out.push_back(*bos_);
  bool prefix = true;
  added_.split(
      text,
      [&](Token token) {
        out.push_back(token);
        prefix = legacy_;
      },
      [&](std::string_view stretch) {
        const std::vector<int> ids = library_->encode(stretch, prefix);
        out.insert(out.end(), ids.begin(), ids.end());
      });
  if (add_special && eos_) out.push_back(*eos_);
  return out;
}

std::string SentencePieceTokenizer::append_bytes(Token token, bool& at_start) const {
  if (token < 0 || token >= vocabulary()) return {};
  std::string bytes = pieces_[token].value_or("");
  if (at_start && drop_first_space_ && !verbatim_[token] && bytes.starts_with(' ')) {
    bytes.erase(0, 1);
    at_start = drop_all_spaces_ && bytes.empty();
    return bytes;
  }
  at_start = at_start && bytes.empty();
  return bytes;
}

std::string SentencePieceTokenizer::decode(std::span<const Token> tokens, bool skip_special) const {
  std::string text;
  bool at_start = true;
  for (const Token token : tokens) {
    const bool skipped = skip_special && token >= 0 && token < vocabulary() && special_[token];
    if (!skipped) text += append_bytes(token, at_start);
  }
  return text;
}

}  // namespace specdec
