#include "shardloom/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>

#include "shardloom/base/error.h"
#include "shardloom/tokenizer/added_token_matcher.h"
#include "shardloom/tokenizer/bpe.h"
#include "shardloom/tokenizer/nfc.h"
#include "shardloom/tokenizer/splitter.h"
#include "shardloom/tokenizer/tokenizer_data.h"
#include "shardloom/tokenizer/utf8.h"
#include "shardloom/tokenizer/word_cache.h"

namespace shardloom::tokenizer {
namespace {

constexpr size_t kKeptWords = size_t{1} << 18;

// What one call of encode() works with. Kept between calls, so that the cache stays warm and
// buffers stay allocated.
struct Scratch {
  WordCache cache;
  std::vector<size_t> word_ends;
  std::string nfc_buffer;
};

class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }

  void give_back(std::unique_ptr<Scratch> scratch) {
    // A giant text must not hold its memory for good.
    if (scratch->word_ends.capacity() > kKeptWords) {
      scratch->word_ends = {};
      scratch->nfc_buffer = {};
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

// The added tokens to look for in the text as it is, or in the normalised text.
AddedTokenMatcher make_matcher(const std::vector<AddedTokenRule>& rules,
                               bool normalized,
                               bool use_nfc) {
  std::vector<std::string> texts;
  std::vector<TokenTrie::Entry> entries;
  texts.reserve(rules.size());
  for (const AddedTokenRule& rule : rules) {
    if (rule.normalized != normalized) continue;
    std::string buffer;
    const std::string& content = rule.token.content;
    texts.emplace_back(normalized && use_nfc ? to_nfc(content, buffer) : content);
    if (std::count(texts.begin(), texts.end(), texts.back()) > 1) {
      throw DataError("added token \"{}\" is the same as another one in NFC", content);
    }
    entries.emplace_back(texts.back(), rule.token.id);
  }
  return AddedTokenMatcher(entries);
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerData data)
      : use_nfc(data.use_nfc),
        splitter(make_splitter(data.pattern, data.place)),
        raw_added(make_matcher(data.added_tokens, false, use_nfc)),
        normalized_added(make_matcher(data.added_tokens, true, use_nfc)),
        bpe(std::move(data.vocabulary), data.merges, data.place),
        ids(std::move(data.ids)),
        added_index(ids.size(), -1) {
    for (AddedTokenRule& rule : data.added_tokens) {
      added_index[rule.token.id] = static_cast<int32_t>(added.size());
      added.push_back(std::move(rule.token));
    }
  }

  void encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const {
    splitter->split(text, scratch.word_ends);
    size_t start = 0;
    for (const size_t end : scratch.word_ends) {
      encode_word(text, start, end - start, scratch.cache, out);
      start = end;
    }
  }

  void encode_word(std::string_view text,
                   size_t start,
                   size_t length,
                   WordCache& cache,
                   std::vector<int32_t>& out) const {
    if (length > WordCache::kMaxWord) return bpe.encode(text.substr(start, length), out);
    std::array<uint64_t, 2> key;
    WordCache::Entry& entry = cache.slot(text, start, length, key);
    if (entry.key == key) {
      out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
      return;
    }
    const size_t first = out.size();
    bpe.encode(text.substr(start, length), out);
    const size_t count = out.size() - first;
    if (count > WordCache::kMaxIds) return;
    entry.key = key;
    entry.count = static_cast<int32_t>(count);
    std::copy(out.begin() + static_cast<ptrdiff_t>(first), out.end(), entry.ids.begin());
  }

  bool use_nfc;
  std::unique_ptr<Splitter> splitter;
  AddedTokenMatcher raw_added;
  AddedTokenMatcher normalized_added;
  Bpe bpe;
  IdMap ids;
  std::vector<AddedToken> added;
  std::vector<int32_t> added_index;  // by id: place in `added`, or -1
  mutable ScratchPool scratches;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_folder(const std::filesystem::path& folder) {
  return Tokenizer(std::make_unique<Impl>(read_tokenizer_data(folder)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  return encode_with_plain(text, {});
}

std::vector<int32_t> Tokenizer::encode_with_plain(std::string_view text,
                                                  const std::vector<int32_t>& plain) const {
  if (const auto invalid = find_invalid_text(text)) {
    throw DataError("the text to encode is not valid UTF-8 at byte {}", *invalid);
  }
  std::vector<int32_t> out;
  out.reserve(text.size() / 4 + 1);
  std::unique_ptr<Scratch> scratch = impl_->scratches.take();
  auto on_token = [&](int32_t id) { out.push_back(id); };
  auto on_words = [&](std::string_view words) { impl_->encode_words(words, *scratch, out); };
  auto on_raw = [&](std::string_view raw) {
    const std::string_view text = impl_->use_nfc ? to_nfc(raw, scratch->nfc_buffer) : raw;
    impl_->normalized_added.cut(text, plain, on_words, on_token);
  };
  impl_->raw_added.cut(text, plain, on_raw, on_token);
  impl_->scratches.give_back(std::move(scratch));
  return out;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= size()) {
      throw DataError("id {} does not exist; the tokenizer has ids 0 to {}", id, size() - 1);
    }
    const int32_t added = impl_->added_index[id];
    if (added < 0) {
      bytes += impl_->bpe.bytes(id);
    } else if (!skip_special || !impl_->added[added].special) {
      bytes += impl_->added[added].content;
    }
  }
  return replace_invalid_utf8(std::move(bytes));
}

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  const auto found = impl_->ids.find(token);
  return found == impl_->ids.end() ? std::nullopt : std::optional(found->second);
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(impl_->ids.size()); }

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return impl_->added; }

}  // namespace shardloom::tokenizer
