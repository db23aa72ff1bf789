#include <fmt/format.h>

#include <algorithm>

#include "backend/error.h"
#include "models/byte_level_files.h"
#include "models/json_node.h"
#include "models/sentencepiece_tokenizer.h"
#include "models/tokenizer.h"

namespace specdec {
namespace {

bool present(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error);
}

/// How an error shows a piece: its bytes, with what is not printable ASCII as \xNN.
std::string quoted(const std::string& bytes) {
  std::string text = "'";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte >= 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text + "'";
}

/// Whether a tokenizer.json spells out a SentencePiece model rather than byte-level BPE.
bool mirrors_sentencepiece(const std::filesystem::path& file) {
  const JsonNode model = JsonNode::parse_file(file).at("model");
  const auto type = model.find("type");
  return model.flag("byte_fallback", false) || (type && type->string() == "Unigram");
}

std::string piece(const Tokenizer& tokenizer, Token token) {
  bool at_start = false;
  return tokenizer.append_bytes(token, at_start);
}

}  // namespace

bool has_tokenizer(const std::filesystem::path& directory) {
  return present(directory / "tokenizer.json") ||
         (present(directory / "vocab.json") && present(directory / "merges.txt")) ||
         present(directory / "tokenizer.model");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  const bool sentencepiece = present(directory / "tokenizer.model");
  if (present(directory / "tokenizer.json") &&
      !(sentencepiece && mirrors_sentencepiece(directory / "tokenizer.json"))) {
    return std::make_unique<ByteLevelBpe>(read_tokenizer_json(directory / "tokenizer.json"));
  }
  if (present(directory / "vocab.json") && present(directory / "merges.txt")) {
    return std::make_unique<ByteLevelBpe>(read_vocab_and_merges(directory));
  }
  if (sentencepiece) return std::make_unique<SentencePieceTokenizer>(directory);
  throw_bad_input(
      fmt::format("{}: found no tokenizer, expected tokenizer.json, vocab.json with merges.txt, or tokenizer.model",
                  directory.string()));
}

void require_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const bool same_size = target.vocabulary() == draft.vocabulary();
  if (same_size && target.fingerprint() == draft.fingerprint()) return;
  std::string difference;
  const auto common = static_cast<Token>(std::min(target.vocabulary(), draft.vocabulary()));
  for (Token id = 0; id < common; ++id) {
    if (piece(target, id) != piece(draft, id)) {
      difference = fmt::format("; id {} is {} to the target and {} to the draft", id, quoted(piece(target, id)),
                               quoted(piece(draft, id)));
      break;
    }
  }
  if (difference.empty()) difference = fmt::format("; the first {} ids agree", common);
  throw_bad_input(fmt::format("draft tokenizer: found {} ids, the target has {}{}; expected one vocabulary for both",
                              draft.vocabulary(), target.vocabulary(), difference));
}

}  // namespace specdec
