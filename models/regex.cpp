#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <utility>

#include "backend/error.h"
#include "models/utf8.h"

namespace specdec {
namespace {

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

// Enough for patterns that keep a frame per character on texts of some megabytes; the tokenizers' own need almost none.
constexpr std::size_t kJitStackStart = 32 << 10;
constexpr std::size_t kJitStackLimit = 256 << 20;
constexpr std::uint32_t kMatchLimit = 1U << 31U;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Compiled {
  Code code;
};

/// What one run over one text needs of its own.
class Regex::Search {
 public:
  explicit Search(const Regex& regex)
      : regex_(regex),
        data_(pcre2_match_data_create_from_pattern(regex.compiled_->code.get(), nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr)) {
    check(data_ && context_, "PCRE2 has no memory for a search");
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  /// The first match at or after `from`.
  bool find(std::string_view text, std::size_t from, std::uint32_t options = 0) {
    // Without NO_UTF_CHECK each call would read the whole text again.
    const int rc = pcre2_match(regex_.compiled_->code.get(), units(text), text.size(), from,
                               options | PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0)
      throw_bad_input(fmt::format("{}: the regular expression fails on the text: {}", regex_.where_, error_text(rc)));
    return true;
  }
  std::size_t begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }
  std::size_t end() const { return pcre2_get_ovector_pointer(data_.get())[1]; }

 private:
  const Regex& regex_;
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
};

Regex::Regex(const std::string& pattern, std::string where) : where_(std::move(where)) {
  const std::string translated = translate_oniguruma(pattern, where_);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  check(context != nullptr, "PCRE2 has no memory to compile a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  compiled_ = std::make_unique<Compiled>();
  compiled_->code.reset(pcre2_compile(units(translated), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &offset,
                                      context.get()));
  if (!compiled_->code) {
    throw_bad_input(fmt::format("{}: found '{}', expected a regular expression: {} near '{}'", where_, pattern,
                                error_text(code), std::string_view(translated).substr(0, offset)));
  }
  // Fails where the machine forbids executable memory; the interpreter then gives the same matches.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  Search search(*this);
  std::size_t done = 0;  // everything before it has been handed out
  std::size_t from = 0;
  while (from < text.size() && search.find(text, from)) {
    if (search.begin() > done) piece(text.substr(done, search.begin() - done));
    if (search.end() > search.begin()) piece(text.substr(search.begin(), search.end() - search.begin()));
    done = search.end();
    from = search.end();
    if (search.end() == search.begin() && from < text.size()) from += utf8_unit(text, from).length;
  }
  if (done < text.size()) piece(text.substr(done));
}

bool Regex::matches_at_start(std::string_view text) const { return Search(*this).find(text, 0, PCRE2_ANCHORED); }

}  // namespace specdec
