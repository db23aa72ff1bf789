#include "models/added_tokens.h"

#include <algorithm>
#include <utility>

#include "models/json_node.h"
#include "models/utf8.h"

namespace specdec {
namespace {

std::size_t previous_character(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
  return end;
}

}  // namespace

AddedToken read_added_token(const JsonNode& node, Token id) {
  AddedToken token;
  token.id = id;
  token.content = node.at("content").string();
  token.special = node.flag("special", false);
  token.single_word = node.flag("single_word", false);
  token.left_strip = node.flag("lstrip", false);
  token.right_strip = node.flag("rstrip", false);
  return token;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), word_(R"([\w\p{Join_Control}])", "added_tokens"), space_(R"(\s)", "added_tokens") {
  for (std::uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (!content.empty()) by_first_byte_[static_cast<unsigned char>(content.front())].push_back(i);
  }
  for (auto& candidates : by_first_byte_) {
    std::ranges::stable_sort(candidates, std::ranges::greater{},
                             [&](std::uint32_t i) { return tokens_[i].content.size(); });
  }
}

void AddedTokens::split(std::string_view all, const std::function<void(Token)>& token,
                        const std::function<void(std::string_view)>& text) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < all.size();) {
    const AddedToken* found = longest_at(all, at);
    if (found == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + found->content.size();
    at = end;
    if (found->single_word && inside_word(all, begin, end)) continue;
    if (found->left_strip) {
      while (begin > done) {
        const std::size_t before = previous_character(all, begin);
        if (!space_.matches_at_start(all.substr(before))) break;
        begin = before;
      }
    }
    if (found->right_strip) {
      while (end < all.size() && space_.matches_at_start(all.substr(end))) end += utf8_unit(all, end).length;
    }
    if (begin > done) text(all.substr(done, begin - done));
    token(found->id);
    // Also where that is a step back, because this token lies in the space that the one before has taken: so does
    // `tokenizers`, which finds all tokens first.
    done = end;
  }
  if (done < all.size()) text(all.substr(done));
}

const AddedToken* AddedTokens::longest_at(std::string_view all, std::size_t at) const {
  for (const std::uint32_t i : by_first_byte_[static_cast<unsigned char>(all[at])]) {
    if (all.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

bool AddedTokens::inside_word(std::string_view all, std::size_t begin, std::size_t end) const {
  const bool word_before = begin > 0 && word_.matches_at_start(all.substr(previous_character(all, begin)));
  const bool word_after = end < all.size() && word_.matches_at_start(all.substr(end));
  return word_before || word_after;
}

}  // namespace specdec
