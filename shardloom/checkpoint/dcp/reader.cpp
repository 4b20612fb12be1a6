#include "shardloom/checkpoint/dcp/reader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/dcp/crc32.h"
#include "shardloom/checkpoint/input_file.h"

namespace shardloom::checkpoint::dcp {
namespace {

// A piece fits into a core's cache with room to spare.
constexpr size_t kPieceBytes = 256 << 10;
// Smaller items are not worth opening their file again.
constexpr size_t kSmallestReadBytes = 4 * kPieceBytes;

template <typename Map>
const typename Map::mapped_type& find_named(const Map& map,
                                            std::string_view name,
                                            const std::filesystem::path& folder,
                                            const char* kind) {
  const auto found = map.find(name);
  if (found != map.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  throw CheckpointError("{} has no {} \"{}\"{}", folder.string(), kind, name,
                        did_you_mean(name, names));
}

// Elements from the first to the last of a box, both included.
uint64_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  uint64_t span = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    span += static_cast<uint64_t>((sizes[i] - 1) * strides[i]);
  }
  return span;
}

int64_t element_offset(const Box& inner, const Box& outer, const std::vector<int64_t>& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    offset += (inner.offsets[i] - outer.offsets[i]) * strides[i];
  }
  return offset;
}

}  // namespace

Reader::Reader(std::filesystem::path folder, ReaderOptions options)
    : folder_(std::move(folder)), options_(options), metadata_(read_metadata(folder_)) {
  const auto map_file = [&](const ItemRange& range) {
    if (files_.contains(range.file)) return;
    try {
      files_.emplace(range.file, MappedFile(folder_ / range.file));
    } catch (const std::system_error& error) {
      throw CheckpointError("{}", error.what());
    }
  };
  for (const auto& [name, tensor] : metadata_.tensors) {
    for (const TensorChunk& chunk : tensor.chunks) map_file(chunk.range);
  }
  for (const auto& [name, range] : metadata_.values) map_file(range);
}

const TensorEntry& Reader::tensor(std::string_view name) const {
  return find_named(metadata_.tensors, name, folder_, "tensor");
}

PythonValue Reader::value(std::string_view name) const {
  const ItemRange& range = find_named(metadata_.values, name, folder_, "value");
  return read_value_item(bytes_of(range), place_of(name, range));
}

// A load touches most bytes once; pages that stay mapped would count as memory of this process.
ZipArchive::PieceDone Reader::page_dropper(const ItemRange& range) const {
  const MappedFile& file = file_of(range);
  return [&file](std::string_view piece) {
    file.drop_pages(static_cast<size_t>(piece.data() - file.data()), piece.size());
  };
}

std::string_view Reader::bytes_of(const ItemRange& range) const {
  const std::string_view file = file_of(range).view();
  if (range.offset > file.size() || range.length > file.size() - range.offset) {
    throw CheckpointError("{} became shorter while it was read", (folder_ / range.file).string());
  }
  return file.substr(range.offset, range.length);
}

std::string Reader::place_of(std::string_view name, const ItemRange& range) const {
  return fmt::format("{}: \"{}\" at byte {}", (folder_ / range.file).string(), name, range.offset);
}

void Reader::check_target(std::string_view name,
                          const TensorEntry& tensor,
                          const Box& box,
                          const BoxTarget& target) const {
  if (!is_inside(box, tensor.shape)) {
    throw CheckpointError("{}: \"{}\": the part {} is outside its shape {}", folder_.string(), name,
                          box_text(box), shape_text(tensor.shape));
  }
  if (target.dtype != tensor.dtype) {
    throw CheckpointError("{}: \"{}\": is {}, {} is wanted", folder_.string(), name,
                          dtype_name(tensor.dtype), dtype_name(target.dtype));
  }
  SHARDLOOM_CHECK(target.strides.size() == box.sizes.size(), "strides {}",
                  shape_text(target.strides));
  const uint64_t needed = span_of(box.sizes, target.strides) * dtype_bits(tensor.dtype) / 8;
  SHARDLOOM_CHECK(needed <= target.bytes, "{} bytes for {} of \"{}\"", target.bytes, needed, name);
}

void Reader::read_box(std::string_view name, const Box& box, const BoxTarget& target) const {
  const TensorEntry& entry = tensor(name);
  BoxTarget strided = target;
  if (strided.strides.empty()) strided.strides = dense_strides(box.sizes);
  check_target(name, entry, box, strided);
  for (const TensorChunk& chunk : entry.chunks) {
    if (volume(chunk.box.sizes) == 0) continue;
    if (intersection(chunk.box, box)) copy_chunk(name, entry, chunk, box, strided);
  }
}

TensorItem Reader::open_chunk(std::string_view name,
                              const TensorEntry& tensor,
                              const TensorChunk& chunk) const {
  const std::string place = place_of(name, chunk.range);
  TensorItem item = read_tensor_item(bytes_of(chunk.range), place);
  if (item.dtype != tensor.dtype || item.shape != chunk.box.sizes) {
    throw CheckpointError("{}: the item is {} {}, {} says {} {}", place, dtype_name(item.dtype),
                          shape_text(item.shape), kMetadataName, dtype_name(tensor.dtype),
                          shape_text(chunk.box.sizes));
  }
  return item;
}

std::once_flag& Reader::checked_flag(const ItemRange& range) const {
  const std::lock_guard lock(checked_->mutex);
  return checked_->flags[&range];
}

// The whole item into dense memory, in pieces that are still in the cache when their CRC is taken.
void Reader::copy_checked(const ItemRange& range, const TensorItem& item, char* target) const {
  const InputFile file(folder_ / range.file);
  const auto offset = static_cast<uint64_t>(item.data.data() - file_of(range).data());
  uint32_t crc = 0;
  for (size_t at = 0; at < item.data.size(); at += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, item.data.size() - at);
    file.read_at(offset + at, target + at, size);
    crc = crc32_of({target + at, size}, crc);
  }
  item.archive.compare_crc(item.storage, crc);
}

void Reader::copy_chunk(std::string_view name,
                        const TensorEntry& tensor,
                        const TensorChunk& chunk,
                        const Box& wanted,
                        const BoxTarget& target) const {
  const TensorItem item = open_chunk(name, tensor, chunk);
  const auto shared = intersection(chunk.box, wanted);
  const uint64_t element = dtype_bits(tensor.dtype) / 8;
  const int64_t offset = element_offset(*shared, wanted, target.strides);
  char* place = target.data + offset * static_cast<int64_t>(element);
  const std::vector<int64_t> dense = dense_strides(shared->sizes);
  const bool is_one_run = *shared == chunk.box && item.strides == dense &&
                          target.strides == dense && item.data.size() == item.storage.data.size() &&
                          item.data.size() == volume(shared->sizes) * element;
  bool copied = false;
  if (options_.verify_crc) {
    std::call_once(checked_flag(chunk.range), [&] {
      if (is_one_run && item.data.size() >= kSmallestReadBytes) {
        copy_checked(chunk.range, item, place);
        copied = true;
      } else {
        item.check_crc(page_dropper(chunk.range));
      }
    });
  }
  if (copied) return;
  const auto first = static_cast<uint64_t>(element_offset(*shared, chunk.box, item.strides));
  const std::string_view source =
      item.data.substr(first * element, span_of(shared->sizes, item.strides) * element);
  copy_strided(shared->sizes, element, source.data(), item.strides, place, target.strides);
  page_dropper(chunk.range)(source);
}

void Reader::read_rows(std::string_view name,
                       int64_t first,
                       int64_t count,
                       const BoxTarget& target) const {
  const TensorEntry& entry = tensor(name);
  if (entry.shape.empty()) {
    throw CheckpointError("{}: \"{}\": is a scalar and has no rows", folder_.string(), name);
  }
  Box box{std::vector<int64_t>(entry.shape.size()), entry.shape};
  box.offsets[0] = first;
  box.sizes[0] = count;
  read_box(name, box, target);
}

std::string Reader::read_tensor(std::string_view name) const {
  const TensorEntry& entry = tensor(name);
  std::string bytes(*tensor_bytes(entry.dtype, entry.shape), '\0');
  read_box(name, {std::vector<int64_t>(entry.shape.size()), entry.shape},
           {bytes.data(), bytes.size(), entry.dtype, {}});
  return bytes;
}

uint64_t Reader::verify(const OnError& on_error) const {
  uint64_t items = 0;
  const auto check = [&](const std::string& name, const ItemRange& range, const auto& open) {
    ++items;
    try {
      check_item_crcs(bytes_of(range), place_of(name, range), page_dropper(range));
      open();
    } catch (const CheckpointError& error) {
      on_error(name, error.what());
    }
  };
  for (const auto& entry : metadata_.tensors) {
    for (const TensorChunk& chunk : entry.second.chunks) {
      check(entry.first, chunk.range, [&] { open_chunk(entry.first, entry.second, chunk); });
    }
  }
  for (const auto& entry : metadata_.values) {
    check(entry.first, entry.second, [&] { value(entry.first); });
  }
  return items;
}

}  // namespace shardloom::checkpoint::dcp
