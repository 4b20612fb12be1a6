// JSON Lines files as a random-access list of lines: mapped, only the line starts are kept in
// memory (12 bytes a line).
//
// Rules: UTF-8 with or without a byte order mark; a line ends at LF or CRLF (U+2028, U+2029 and
// U+0085 are ordinary characters); lines of blanks are skipped but counted; the last line needs no
// line end. The content of a line is not looked at before it is asked for, so that a bad line costs
// nothing until its turn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/base/files.h"
#include "shardloom/base/json.h"

namespace shardloom::data {

// Longer lines are refused: no record of text and paths is that long, and preparing one takes some
// 30 times its size in memory.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

// One indexed file.
class JsonlFile {
 public:
  // Throws DataError: missing, unreadable, not text (gzip, Parquet, git-lfs pointer, UTF-16, ...),
  // or one JSON array.
  explicit JsonlFile(const std::filesystem::path& path);

  int64_t size() const { return static_cast<int64_t>(starts_.size()); }
  // Text of line `index` without its line end. Throws DataError when it is longer than
  // kMaxLineBytes.
  std::string_view line(int64_t index) const;
  // "path:12", lines counted from 1 and blank lines included.
  std::string place(int64_t index) const;
  // "name, bytes, lines, XXH3 of the content".
  std::string fingerprint() const;

 private:
  void check_kind() const;
  void index_lines();

  std::filesystem::path path_;
  MappedFile file_;
  std::vector<uint64_t> starts_;
  std::vector<uint32_t> line_numbers_;
  uint64_t hash_ = 0;
};

// Several files one after the other.
class JsonlFiles {
 public:
  explicit JsonlFiles(const std::vector<std::filesystem::path>& paths);

  int64_t size() const { return first_index_.back(); }
  std::string_view line(int64_t index) const;
  std::string place(int64_t index) const;
  std::string fingerprint() const;

 private:
  // The file of line `index` and the index within it.
  std::pair<const JsonlFile&, int64_t> locate(int64_t index) const;

  std::vector<JsonlFile> files_;
  std::vector<int64_t> first_index_;  // of each file, and the total at the end
};

// Parses one line. Throws DataError "place:byte: cause" (byte counted from 1 within the line):
// invalid UTF-8, lone surrogates, a cut line, a duplicate key, text after the value, or a value
// that is no JSON object ("place: ...").
Json parse_record_line(std::string_view line, const std::string& place);

}  // namespace shardloom::data
