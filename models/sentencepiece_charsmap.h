#pragma once

#include <string>
#include <string_view>

namespace specdec {

/// Refuses a SentencePiece model whose rules of normalisation would lead libsentencepiece out of its memory. The library walks the trie of
/// `precompiled_charsmap` without looking at its bounds, so the bytes of a damaged file would decide what it reads.
///
/// `model` is the serialised ModelProto. Throws kBadInput, beginning with `file`, for rules that are not those of a trie and for what is no
/// protobuf message; everything else is left to the library.
void check_charsmap(std::string_view model, const std::string& file);

}  // namespace specdec
