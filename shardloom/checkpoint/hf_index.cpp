#include "shardloom/checkpoint/hf_index.h"

#include <algorithm>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {
namespace {

constexpr size_t kNamesShown = 5;

Json read_index_json(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
    const std::string foreign = describe_foreign_content(file.view());
    if (!foreign.empty()) {
      throw CheckpointError("{}: not an index; it looks like {}", path.string(), foreign);
    }
    return parse_json(file.view(), path.string(), ExitCode::kCheckpoint);
  } catch (const std::system_error& error) {
    throw CheckpointError("{}", error.what());
  } catch (const Json::exception& error) {
    throw CheckpointError("{}: not valid JSON: {}", path.string(), error.what());
  }
}

void check_file_name(const std::filesystem::path& index,
                     const std::string& tensor,
                     const std::string& name) {
  const std::filesystem::path file(name);
  if (file.filename() != file || file.extension() != ".safetensors") {
    throw CheckpointError(
        "{}: weight_map.\"{}\" is \"{}\"; it must name a .safetensors file of the same folder",
        index.string(), tensor, name);
  }
}

}  // namespace

TensorsOfFile read_hf_index(const std::filesystem::path& path) {
  const Json index = read_index_json(path);
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (weight_map == index.end() || !weight_map->is_object()) {
    throw CheckpointError("{}: no object \"weight_map\"", path.string());
  }
  if (weight_map->empty()) throw CheckpointError("{}: the weight_map is empty", path.string());
  TensorsOfFile tensors_of_file;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      throw CheckpointError("{}: weight_map.\"{}\" is not a file name", path.string(), tensor);
    }
    const auto& name = file.get_ref<const std::string&>();
    check_file_name(path, tensor, name);
    tensors_of_file[name].push_back(tensor);
  }
  return tensors_of_file;
}

std::string hf_index_text(const TensorsOfFile& tensors_of_file, uint64_t total_size) {
  std::map<std::string, std::string> weight_map;
  for (const auto& [file, tensors] : tensors_of_file) {
    for (const std::string& tensor : tensors) weight_map[tensor] = file;
  }
  OrderedJson index;
  index["metadata"]["total_size"] = total_size;
  index["weight_map"] = weight_map;
  return index.dump(2) + "\n";
}

std::string shortened_list(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text = join({names.begin(), names.begin() + static_cast<ptrdiff_t>(shown)}, ", ");
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace shardloom::checkpoint
