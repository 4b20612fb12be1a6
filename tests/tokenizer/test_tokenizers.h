// The tokenizers of the tests, each loaded once, and random text.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "shardloom/tokenizer/tokenizer.h"
#include "shardloom/tokenizer/utf8.h"

namespace shardloom::tokenizer {

inline const std::filesystem::path kQwenFolder = SHARDLOOM_TEST_DATA "/tokenizer/qwen3";
inline const std::filesystem::path kTok01Folder = SHARDLOOM_TEST_DATA "/tokenizer/TOK-01";
inline const std::filesystem::path kTinyFolder = SHARDLOOM_SOURCE_DIR "/examples/tiny/model";

inline const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::from_folder(kQwenFolder);
  return tokenizer;
}

inline const Tokenizer& tok01() {
  static const Tokenizer tokenizer = Tokenizer::from_folder(kTok01Folder);
  return tokenizer;
}

inline const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::from_folder(kTinyFolder);
  return tokenizer;
}

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// ASCII, letters with marks, Greek and Cyrillic, Hebrew to Arabic, Indic, Thai, jamo, spaces and
// symbols, kana, Han, Hangul, compatibility forms, mathematical digits, emoji. All of it is older
// than Unicode 10.
inline const std::vector<CodePointRange> kTextRanges = {
    {0x00, 0x7F},     {0x20, 0x7E},     {0x80, 0x24F},    {0x300, 0x345},     {0x370, 0x52F},
    {0x591, 0x5F4},   {0x620, 0x6FF},   {0x901, 0x97F},   {0xE01, 0xE5B},     {0x1100, 0x11FF},
    {0x1E00, 0x1FFF}, {0x2000, 0x206F}, {0x2100, 0x218B}, {0x3000, 0x30FF},   {0x4E00, 0x9FA5},
    {0xAC00, 0xD7A3}, {0xF900, 0xFAD9}, {0xFF00, 0xFFEF}, {0x1D7CE, 0x1D7FF}, {0x1F300, 0x1F64F},
};

inline char32_t random_code_point(std::mt19937& random, const std::vector<CodePointRange>& ranges) {
  const CodePointRange& range = ranges[random() % ranges.size()];
  return range.first + static_cast<char32_t>(random() % (range.last - range.first + 1));
}

// Up to `max_chars` code points: of all ranges, or of up to three of them, in which characters meet
// that belong together.
inline std::string random_text(std::mt19937& random, size_t max_chars = 40) {
  std::vector<CodePointRange> ranges = kTextRanges;
  if (random() % 4 != 0) {
    ranges.clear();
    for (size_t i = 0; i <= random() % 3; ++i) {
      ranges.push_back(kTextRanges[random() % kTextRanges.size()]);
    }
  }
  static const std::vector<std::string> kPieces = {" ",  "  ", "\n", "\r\n", "'s",     "'LL",
                                                   "\t", "1",  "a",  "..",   "\u017F", "'"};
  std::string text;
  for (size_t i = random() % (max_chars + 1); i > 0; --i) {
    if (random() % 4 == 0) {
      text += kPieces[random() % kPieces.size()];
    } else {
      append_utf8(random_code_point(random, ranges), text);
    }
  }
  return text;
}

}  // namespace shardloom::tokenizer
