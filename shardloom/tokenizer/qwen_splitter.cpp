#include "shardloom/tokenizer/char_table.h"
#include "shardloom/tokenizer/splitter.h"
#include "shardloom/tokenizer/utf8.h"

namespace shardloom::tokenizer {
namespace {

struct ClassifiedChar {
  CharClass char_class;
  size_t end;  // offset behind the character
};

class QwenScanner {
 public:
  explicit QwenScanner(std::string_view text) : text_(text), table_(CharTable::get()) {}

  // End of the word that starts at `pos`. The comments give the alternative of kQwenPattern.
  size_t end_of_word(size_t pos) const {
    const ClassifiedChar first = at(pos);
    switch (first.char_class) {
      case CharClass::kLetter:  // \p{L}+
        return skip(first.end, CharClass::kLetter);
      case CharClass::kNumber:  // \p{N}
        return first.end;
      case CharClass::kOther:
        return end_of_symbols(pos, first.end);
      case CharClass::kSpace:
        return end_after_space(pos, first.end);
      case CharClass::kNewline:
        return end_of_blanks(pos);
    }
    return first.end;
  }

 private:
  ClassifiedChar at(size_t pos) const {
    const CodePoint c = decode_utf8(text_, pos);
    return {table_[c.value].char_class, pos + c.length};
  }

  bool is_at(size_t pos, CharClass char_class) const {
    return pos < text_.size() && at(pos).char_class == char_class;
  }

  size_t skip(size_t pos, CharClass char_class) const {
    while (pos < text_.size()) {
      const ClassifiedChar c = at(pos);
      if (c.char_class != char_class) break;
      pos = c.end;
    }
    return pos;
  }

  char lower(size_t pos) const {
    return pos < text_.size() ? static_cast<char>(text_[pos] | 0x20) : '\0';
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d): end behind the apostrophe at `pos` and its letters, or 0. U+017F
  // folds to s.
  size_t end_of_contraction(size_t pos) const {
    const char one = lower(pos + 1);
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return pos + 2;
    const char two = lower(pos + 2);
    if ((one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l')) {
      return pos + 3;
    }
    return text_.substr(pos + 1, 2) == "\u017F" ? pos + 3 : 0;
  }

  // The rest of ` ?[^\s\p{L}\p{N}]+[\r\n]*` behind its first symbol.
  size_t end_of_symbol_run(size_t pos) const {
    return skip(skip(pos, CharClass::kOther), CharClass::kNewline);
  }

  size_t end_of_symbols(size_t pos, size_t next) const {
    if (text_[pos] == '\'') {
      if (const size_t end = end_of_contraction(pos); end != 0) return end;
    }
    if (is_at(next, CharClass::kLetter)) return skip(next, CharClass::kLetter);  // [^\r\n..]?\p{L}+
    return end_of_symbol_run(next);
  }

  size_t end_after_space(size_t pos, size_t next) const {
    if (next < text_.size()) {
      const ClassifiedChar second = at(next);
      if (second.char_class == CharClass::kLetter) return skip(second.end, CharClass::kLetter);
      if (second.char_class == CharClass::kOther && text_[pos] == ' ') {
        return end_of_symbol_run(second.end);
      }
    }
    return end_of_blanks(pos);
  }

  // \s*[\r\n]+ up to the last newline of the run; else \s+(?!\S), which leaves the last blank to
  // the word behind; else \s+.
  size_t end_of_blanks(size_t pos) const {
    size_t behind_newline = 0;
    size_t last_start = pos;
    size_t end = pos;
    while (end < text_.size()) {
      const ClassifiedChar c = at(end);
      if (c.char_class != CharClass::kSpace && c.char_class != CharClass::kNewline) break;
      if (c.char_class == CharClass::kNewline) behind_newline = c.end;
      last_start = end;
      end = c.end;
    }
    if (behind_newline != 0) return behind_newline;
    return end == text_.size() || last_start == pos ? end : last_start;
  }

  std::string_view text_;
  const CharTable& table_;
};

class QwenSplitter : public Splitter {
 public:
  void split(std::string_view text, std::vector<size_t>& ends) const override {
    ends.clear();
    const QwenScanner scanner(text);
    for (size_t pos = 0; pos < text.size();) {
      pos = scanner.end_of_word(pos);
      ends.push_back(pos);
    }
  }
};

}  // namespace

std::unique_ptr<Splitter> make_qwen_splitter() { return std::make_unique<QwenSplitter>(); }

std::unique_ptr<Splitter> make_splitter(const std::string& pattern, const std::string& place) {
  return pattern == kQwenPattern ? make_qwen_splitter() : make_regex_splitter(pattern, place);
}

}  // namespace shardloom::tokenizer
