#include "shardloom/data/jsonl.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "shardloom/base/strings.h"

namespace shardloom::data {
namespace {

constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
// Pages behind the scan are given back in steps of this size, so that indexing does not fill the
// memory.
constexpr size_t kDropStep = size_t{16} << 20;

MappedFile map_data_file(const std::filesystem::path& path) {
  try {
    return MappedFile(path);
  } catch (const std::system_error& error) {
    throw DataError("{} (data.dataset_param.basic_parameters.dataset)", error.what());
  }
}

std::string describe_wrong_kind(std::string_view head) {
  if (std::string known = describe_foreign_content(head); !known.empty()) return known;
  if (head.starts_with("\x1F\x8B")) return "a gzip file (unpack it)";
  if (head.starts_with("PAR1")) return "a Parquet file (convert it to JSON lines)";
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) {
    return "UTF-16 text (convert it: iconv -f UTF-16 -t UTF-8)";
  }
  return {};
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

}  // namespace

JsonlFile::JsonlFile(const std::filesystem::path& path) : path_(path), file_(map_data_file(path)) {
  check_kind();
  index_lines();
}

void JsonlFile::check_kind() const {
  std::string_view head = file_.view().substr(0, 4096);
  if (const std::string kind = describe_wrong_kind(head); !kind.empty()) {
    throw DataError("{} is {}, not JSON lines", path_.string(), kind);
  }
  if (head.starts_with(kUtf8Mark)) head.remove_prefix(kUtf8Mark.size());
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && head[first] == '[') {
    auto target = std::filesystem::path(path_).replace_extension(".jsonl");
    if (target == path_) target.replace_extension(".lines.jsonl");  // not over its own input
    throw DataError(
        "{} is one JSON array, not JSON lines (one object a line); convert it: jq -c '.[]' {} > {}",
        path_.string(), path_.string(), target.string());
  }
}

void JsonlFile::index_lines() {
  const std::string_view text = file_.view();
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  size_t dropped = 0;
  uint32_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t next = std::min(end + 1, text.size());
    XXH3_64bits_update(&hash, text.data() + begin, next - begin);
    ++number;
    const size_t mark = begin == 0 && text.starts_with(kUtf8Mark) ? kUtf8Mark.size() : 0;
    if (!is_blank(text.substr(begin + mark, end - begin - mark))) {
      starts_.push_back(begin + mark);
      line_numbers_.push_back(number);
    }
    begin = next;
    if (begin - dropped >= kDropStep) {
      file_.drop_pages(dropped, begin - dropped);
      dropped = begin;
    }
  }
  hash_ = XXH3_64bits_digest(&hash);
}

std::string_view JsonlFile::line(int64_t index) const {
  const size_t begin = starts_.at(static_cast<size_t>(index));
  const std::string_view text = file_.view();
  const size_t end = std::min(text.find('\n', begin), text.size());
  std::string_view line = text.substr(begin, end - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.size() > kMaxLineBytes) {
    throw DataError("{}: the line has {}, more than the limit of {}", place(index),
                    human_bytes(line.size()), human_bytes(kMaxLineBytes));
  }
  return line;
}

std::string JsonlFile::place(int64_t index) const {
  return fmt::format("{}:{}", path_.string(), line_numbers_.at(static_cast<size_t>(index)));
}

std::string JsonlFile::fingerprint() const {
  return fmt::format("{}, {} bytes, {} records, xxh3 {:016x}", path_.filename().string(),
                     file_.size(), size(), hash_);
}

JsonlFiles::JsonlFiles(const std::vector<std::filesystem::path>& paths) : first_index_{0} {
  for (const auto& path : paths) {
    files_.emplace_back(path);
    first_index_.push_back(first_index_.back() + files_.back().size());
  }
}

std::pair<const JsonlFile&, int64_t> JsonlFiles::locate(int64_t index) const {
  SHARDLOOM_CHECK(index >= 0 && index < size(), "record {} of {}", index, size());
  const auto above = std::upper_bound(first_index_.begin(), first_index_.end(), index);
  const auto file = static_cast<size_t>(above - first_index_.begin()) - 1;
  return {files_[file], index - first_index_[file]};
}

std::string_view JsonlFiles::line(int64_t index) const {
  const auto [file, local] = locate(index);
  return file.line(local);
}

std::string JsonlFiles::place(int64_t index) const {
  const auto [file, local] = locate(index);
  return file.place(local);
}

std::string JsonlFiles::fingerprint() const {
  std::vector<std::string> parts;
  for (const auto& file : files_) parts.push_back(file.fingerprint());
  return join(parts, "; ");
}

}  // namespace shardloom::data
