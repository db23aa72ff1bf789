#include "models/byte_level_bpe.h"

#include <fmt/format.h>

#include <queue>
#include <utility>

#include "backend/error.h"
#include "models/utf8.h"

namespace specdec {
namespace {

/// A token of the piece that is being merged, in a doubly linked list by index.
struct Symbol {
  Token token = 0;
  std::int32_t previous = -1;
  std::int32_t next = -1;
  bool alive = true;
};

/// A merge that was possible when it was queued.
struct Candidate {
  std::int32_t rank = 0;
  std::int32_t left = 0;
  Token merged = 0;

  // The queue's top is the lowest rank, leftmost first.
  bool operator<(const Candidate& other) const { return std::pair(rank, left) > std::pair(other.rank, other.left); }
};

class Merger {
 public:
  Merger(const BytePairMerges& model, std::vector<Symbol> symbols) : model_(model), symbols_(std::move(symbols)) {
    for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols_.size()); ++i) consider(i);
  }

  const std::vector<Symbol>& run() {
    while (!queue_.empty()) {
      const Candidate candidate = queue_.top();
      queue_.pop();
      apply(candidate);
    }
    return symbols_;
  }

 private:
  const Merge* merge_at(std::int32_t left) const {
    const Symbol& symbol = symbols_[left];
    if (symbol.next < 0) return nullptr;
    const auto found = model_.merges.find(BytePairMerges::key(symbol.token, symbols_[symbol.next].token));
    return found == model_.merges.end() ? nullptr : &found->second;
  }

  void consider(std::int32_t left) {
    if (const Merge* merge = merge_at(left)) queue_.push({merge->rank, left, merge->merged});
  }

  void apply(const Candidate& candidate) {
    Symbol& left = symbols_[candidate.left];
    if (!left.alive) return;
    // A neighbour may have changed since. As in `tokenizers`, the candidate stands if the pair still gives the same
    // token.
    const Merge* merge = merge_at(candidate.left);
    if (merge == nullptr || merge->merged != candidate.merged) return;
    Symbol& right = symbols_[left.next];
    left.token = candidate.merged;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) symbols_[left.next].previous = candidate.left;
    if (left.previous >= 0) consider(left.previous);
    consider(candidate.left);
  }

  const BytePairMerges& model_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void BytePairMerges::encode(std::string_view bytes, std::vector<Token>& out) const {
  std::vector<Symbol> symbols;
  symbols.reserve(bytes.size());
  bool after_unknown = false;
  for (const char byte : bytes) {
    const std::optional<Token> token = byte_token[static_cast<unsigned char>(byte)];
    const bool fused = !token && fuse_unknown && after_unknown;
    after_unknown = !token;
    if (fused || (!token && !unknown)) continue;
    const auto index = static_cast<std::int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({token ? *token : *unknown, index - 1});
  }
  const std::size_t count = symbols.size();
  Merger merger(*this, std::move(symbols));
  const std::vector<Symbol>& merged = merger.run();
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = merged[i].next) out.push_back(merged[i].token);
}

std::uint64_t hash_pieces(const std::vector<std::optional<std::string>>& pieces) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  const auto mix = [&](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3U; };
  for (const auto& piece : pieces) {
    // The length goes first, so that no two tables run together; no piece is as long as what stands for a gap.
    std::uint64_t length = piece ? piece->size() : ~std::uint64_t{0};
    for (int i = 0; i < 8; ++i, length >>= 8U) mix(length & 0xFFU);
    if (!piece) continue;
    for (const char byte : *piece) mix(static_cast<unsigned char>(byte));
  }
  return hash;
}

ByteLevelBpe::ByteLevelBpe(Parts parts)
    : parts_(std::move(parts)), special_(parts_.pieces.size()), fingerprint_(hash_pieces(parts_.pieces)) {
  for (const AddedTokens* added : {&parts_.added, &parts_.added_normalized}) {
    for (const AddedToken& token : added->tokens()) {
      if (token.special) special_[token.id] = true;
    }
  }
}

std::vector<Token> ByteLevelBpe::encode(std::string_view text, bool add_special) const {
  require_utf8(text);
  std::vector<Token> out;
  if (add_special) out = parts_.prefix;
  const auto word = [&](std::string_view bytes) {
    if (!parts_.whole.empty()) {
      if (const auto found = parts_.whole.find(std::string(bytes)); found != parts_.whole.end()) {
        out.push_back(found->second);
        return;
      }
    }
    parts_.merges.encode(bytes, out);
  };
  const auto emit = [&](Token token) { out.push_back(token); };
  const auto words = [&](std::string_view stretch) { parts_.pretokenizer.split(stretch, word); };
  parts_.added.split(text, emit,
                     [&](std::string_view stretch) { parts_.added_normalized.split(stretch, emit, words); });
  if (add_special) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  return out;
}

std::string_view ByteLevelBpe::piece(Token token) const {
  if (token < 0 || token >= vocabulary()) return {};
  const std::optional<std::string>& bytes = parts_.pieces[token];
  return bytes ? std::string_view(*bytes) : std::string_view();
}

std::string ByteLevelBpe::decode(std::span<const Token> tokens, bool skip_special) const {
  std::string bytes;
  for (const Token token : tokens) {
    const bool skipped = skip_special && token >= 0 && token < vocabulary() && special_[token];
    if (!skipped) bytes += piece(token);
  }
  return bytes;
}

std::string ByteLevelBpe::append_bytes(Token token, bool& at_start) const {
  at_start = false;
  return std::string(piece(token));
}

}  // namespace specdec
