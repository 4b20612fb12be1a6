#include "shardloom/checkpoint/dcp/metadata.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/hf_index.h"

namespace shardloom::checkpoint::dcp {
namespace {

namespace fs = std::filesystem;

struct NamedRange {
  const std::string* name;
  const ItemRange* range;
};

// By file, then by offset.
std::map<std::string_view, std::vector<NamedRange>> ranges_by_file(const Metadata& metadata) {
  std::map<std::string_view, std::vector<NamedRange>> by_file;
  for (const auto& [name, tensor] : metadata.tensors) {
    for (const TensorChunk& chunk : tensor.chunks) {
      by_file[chunk.range.file].push_back({&name, &chunk.range});
    }
  }
  for (const auto& [name, range] : metadata.values) by_file[range.file].push_back({&name, &range});
  for (auto& [file, ranges] : by_file) {
    std::sort(ranges.begin(), ranges.end(), [](const NamedRange& a, const NamedRange& b) {
      return std::pair(a.range->offset, a.range->length) <
             std::pair(b.range->offset, b.range->length);
    });
  }
  return by_file;
}

void check_missing_files(const std::map<std::string_view, std::vector<NamedRange>>& by_file,
                         const fs::path& folder) {
  std::vector<std::string> missing;
  std::string example;
  for (const auto& [file, ranges] : by_file) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / file, ignored)) continue;
    if (missing.empty()) {
      example = fmt::format(
          "{} (needed for \"{}\"{})", file, *ranges[0].name,
          ranges.size() == 1 ? std::string() : fmt::format(" and {} more", ranges.size() - 1));
    }
    missing.emplace_back(file);
  }
  if (missing.empty()) return;
  throw CheckpointError("{}: {} of its {} files missing: {}; copy the checkpoint as a whole",
                        folder.string(), missing.size(), by_file.size(),
                        missing.size() == 1 ? example : shortened_list(missing));
}

void check_ranges(const std::vector<NamedRange>& ranges, const fs::path& path, uint64_t file_size) {
  uint64_t end = 0;
  const NamedRange* before = nullptr;
  for (const NamedRange& item : ranges) {
    const ItemRange& range = *item.range;
    // Two empty chunks of a tensor at one place.
    if (before != nullptr && *before->name == *item.name && *before->range == range) continue;
    uint64_t item_end = 0;
    if (__builtin_add_overflow(range.offset, range.length, &item_end) || item_end > file_size) {
      throw CheckpointError(
          "{} has {} bytes, \"{}\" needs {} at {}; was the copy or the save cut short?",
          path.string(), file_size, *item.name, range.length, range.offset);
    }
    if (range.offset < end) {
      throw CheckpointError("{}: the bytes of \"{}\" and \"{}\" overlap at {}", path.string(),
                            *before->name, *item.name, range.offset);
    }
    end = item_end;
    before = &item;
  }
}

bool has_extension(const fs::path& folder, const char* extension) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == extension) return true;
  }
  return false;
}

std::string read_metadata_file(const fs::path& folder) {
  const fs::path path = folder / kMetadataName;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw CheckpointError("{} is not a folder", folder.string());
  }
  if (!fs::exists(path, ignored)) {
    throw CheckpointError(
        "{}: not a complete checkpoint: {} is missing{}", folder.string(), kMetadataName,
        has_extension(folder, ".distcp") ? " (it is written last; was the save interrupted?)" : "");
  }
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    throw CheckpointError("{}", error.what());
  }
  if (text.empty()) throw CheckpointError("{} is empty (0 bytes)", path.string());
  return text;
}

// Empty chunks hold nothing, so that several ranks may have one at the same place; storage_data
// can name one of them only.
bool is_known_empty_chunk(const TensorEntry& tensor, const Box& box) {
  if (volume(box.sizes) > 0) return false;
  return std::any_of(tensor.chunks.begin(), tensor.chunks.end(),
                     [&](const TensorChunk& chunk) { return chunk.box.offsets == box.offsets; });
}

void merge_tensor(TensorEntry& into, const TensorEntry& part, const std::string& where) {
  if (into.dtype != part.dtype || into.shape != part.shape) {
    throw CheckpointError("{}: one rank has it as {} {}, another as {} {}", where,
                          dtype_name(into.dtype), shape_text(into.shape), dtype_name(part.dtype),
                          shape_text(part.shape));
  }
  for (const TensorChunk& chunk : part.chunks) {
    if (!is_known_empty_chunk(into, chunk.box)) into.chunks.push_back(chunk);
  }
}

// Empty when there is none.
std::string tensor_problem(const TensorEntry& tensor) {
  if (!tensor_bytes(tensor.dtype, tensor.shape)) {
    return fmt::format("shape {} is too big", shape_text(tensor.shape));
  }
  std::vector<const Box*> boxes;
  for (const TensorChunk& chunk : tensor.chunks) {
    if (!is_inside(chunk.box, tensor.shape)) {
      return fmt::format("the chunk {} is outside the shape {}", box_text(chunk.box),
                         shape_text(tensor.shape));
    }
    boxes.push_back(&chunk.box);
  }
  return coverage_problem(tensor.shape, boxes);
}

}  // namespace

void check_coverage(const Metadata& metadata, const std::string& place) {
  for (const auto& [name, tensor] : metadata.tensors) {
    const std::string problem = tensor_problem(tensor);
    if (!problem.empty()) throw CheckpointError("{}: \"{}\": {}", place, name, problem);
  }
}

void check_files(const Metadata& metadata, const fs::path& folder) {
  const auto by_file = ranges_by_file(metadata);
  check_missing_files(by_file, folder);
  for (const auto& [file, ranges] : by_file) {
    std::error_code error;
    const uint64_t size = fs::file_size(folder / file, error);
    if (error) throw CheckpointError("{}: {}", (folder / file).string(), error.message());
    check_ranges(ranges, folder / file, size);
  }
}

Metadata read_metadata(const fs::path& folder) {
  const std::string place = (folder / kMetadataName).string();
  Metadata metadata = parse_metadata(read_metadata_file(folder), place);
  check_coverage(metadata, place);
  check_files(metadata, folder);
  return metadata;
}

void merge_metadata(Metadata& into, const Metadata& part, const std::string& place) {
  for (const auto& [name, tensor] : part.tensors) {
    const std::string where = fmt::format("{}: \"{}\"", place, name);
    if (into.values.contains(name)) {
      throw CheckpointError("{}: one rank has it as a tensor, another as a value", where);
    }
    const auto [found, is_new] = into.tensors.try_emplace(name, tensor);
    if (!is_new) merge_tensor(found->second, tensor, where);
  }
  for (const auto& [name, range] : part.values) {
    if (into.tensors.contains(name) || !into.values.emplace(name, range).second) {
      throw CheckpointError("{}: \"{}\": written by two ranks", place, name);
    }
  }
  for (const auto& [name, path] : part.planner_data) {
    if (!into.planner_data.emplace(name, path).second && into.planner_data.at(name) != path) {
      throw CheckpointError("{}: \"{}\": the ranks give different paths", place, name);
    }
  }
}

}  // namespace shardloom::checkpoint::dcp
