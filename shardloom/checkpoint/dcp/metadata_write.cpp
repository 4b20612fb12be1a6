#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/dcp/metadata_classes.h"
#include "shardloom/checkpoint/dcp/pickle_writer.h"
#include "shardloom/checkpoint/dcp/torch_dtype.h"
#include "shardloom/checkpoint/output_file.h"

namespace shardloom::checkpoint::dcp {
namespace {

class MetadataPickle {
 public:
  explicit MetadataPickle(const Metadata& metadata) : metadata_(metadata) {}

  std::string write() && {
    pickle_.begin_instance(classes::kMetadata);
    pickle_.text("state_dict_metadata");
    write_state();
    pickle_.text("planner_data");
    write_planner_data();
    pickle_.text("storage_data");
    write_storage();
    pickle_.text("storage_meta");
    pickle_.none();
    pickle_.text("version");
    pickle_.text("1.0.0");
    pickle_.end_instance();
    return std::move(pickle_).finish();
  }

 private:
  void write_state() {
    pickle_.empty_dict();
    pickle_.mark();
    for (const auto& [name, tensor] : metadata_.tensors) {
      pickle_.text(name);
      write_tensor(tensor);
    }
    for (const auto& [name, range] : metadata_.values) {
      pickle_.text(name);
      pickle_.empty_instance(classes::kBytes);
    }
    pickle_.set_items();
  }

  void write_tensor(const TensorEntry& tensor) {
    pickle_.begin_instance(classes::kTensor);
    pickle_.text("properties");
    write_properties(tensor.dtype);
    pickle_.text("size");
    pickle_.torch_size(tensor.shape);
    pickle_.text("chunks");
    pickle_.empty_list();
    pickle_.mark();
    for (const TensorChunk& chunk : tensor.chunks) {
      pickle_.begin_instance(classes::kChunk);
      pickle_.text("offsets");
      pickle_.torch_size(chunk.box.offsets);
      pickle_.text("sizes");
      pickle_.torch_size(chunk.box.sizes);
      pickle_.end_instance();
    }
    pickle_.appends();
    pickle_.end_instance();
  }

  // The state is a tuple: dtype, layout, requires_grad, memory format, pin_memory.
  void write_properties(DType dtype) {
    pickle_.empty_instance(classes::kProperties);
    pickle_.mark();
    pickle_.global(torch_dtype_global(dtype));
    pickle_.global("torch.serialization _get_layout");
    pickle_.mark();
    pickle_.text("torch.strided");
    pickle_.tuple();
    pickle_.reduce();
    pickle_.boolean(false);
    pickle_.global(classes::kMemoryFormat);
    pickle_.int_tuple({0});
    pickle_.reduce();
    pickle_.boolean(false);
    pickle_.tuple();
    pickle_.build();
  }

  void write_planner_data() {
    pickle_.empty_dict();
    pickle_.mark();
    for (const auto& [name, path] : metadata_.planner_data) {
      pickle_.text(name);
      pickle_.mark();
      for (const auto& part : path) {
        if (const auto* key = std::get_if<std::string>(&part)) {
          pickle_.text(*key);
        } else {
          pickle_.integer(std::get<int64_t>(part));
        }
      }
      pickle_.tuple();
    }
    pickle_.set_items();
  }

  void write_storage() {
    pickle_.empty_dict();
    pickle_.mark();
    for (const auto& [name, tensor] : metadata_.tensors) {
      for (size_t i = 0; i < tensor.chunks.size(); ++i) {
        pickle_.begin_instance(classes::kIndex);
        pickle_.text("fqn");
        pickle_.text(name);
        pickle_.text("index");
        pickle_.integer(static_cast<int64_t>(i));
        pickle_.text("offset");
        pickle_.torch_size(tensor.chunks[i].box.offsets);
        pickle_.end_instance();
        write_range(tensor.chunks[i].range);
      }
    }
    for (const auto& [name, range] : metadata_.values) {
      pickle_.begin_instance(classes::kIndex);
      pickle_.text("fqn");
      pickle_.text(name);
      pickle_.text("index");
      pickle_.none();
      pickle_.end_instance();
      write_range(range);
    }
    pickle_.set_items();
  }

  void write_range(const ItemRange& range) {
    pickle_.begin_instance(classes::kStorageInfo);
    pickle_.text("relative_path");
    pickle_.text(range.file);
    pickle_.text("offset");
    pickle_.integer(static_cast<int64_t>(range.offset));
    pickle_.text("length");
    pickle_.integer(static_cast<int64_t>(range.length));
    pickle_.end_instance();
  }

  const Metadata& metadata_;
  PickleWriter pickle_;
};

}  // namespace

std::string metadata_pickle(const Metadata& metadata) { return MetadataPickle(metadata).write(); }

void write_metadata(const std::filesystem::path& folder, const Metadata& metadata) {
  const std::filesystem::path path = folder / kMetadataName;
  check_coverage(metadata, path.string());
  check_files(metadata, folder);
  const std::string pickle = metadata_pickle(metadata);
  OutputFile file(path, pickle.size());
  file.write(pickle);
  file.commit();
}

}  // namespace shardloom::checkpoint::dcp
