#include "shardloom/checkpoint/convert/convert_model.h"

#include <algorithm>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {

std::vector<int64_t> parameter_shape(const nn::WeightSource& source) {
  if (source.is_whole()) return source.pieces[0].shape;
  std::vector<int64_t> shape(source.pieces.at(0).shape.size());
  for (const nn::WeightPiece& piece : source.pieces) {
    std::vector<int64_t> part = piece.shape;
    if (piece.transpose) std::swap(part.at(0), part.at(1));
    shape[0] = std::max(shape[0], piece.row + part[0]);
    if (shape.size() > 1) shape[1] = std::max(shape[1], piece.column + part[1]);
  }
  return shape;
}

std::vector<nn::WeightSource> with_prefix(std::vector<nn::WeightSource> sources,
                                          const std::string& prefix) {
  for (nn::WeightSource& source : sources) {
    for (nn::WeightPiece& piece : source.pieces) piece.key.insert(0, prefix);
  }
  return sources;
}

void require_space(const std::filesystem::path& folder, uint64_t bytes) {
  std::filesystem::path there = std::filesystem::absolute(folder);
  std::error_code error;
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const auto space = std::filesystem::space(there, error);
  if (error || space.available >= bytes) return;
  throw CheckpointError("{} needs {}, {} has {} free", folder.string(), human_bytes(bytes),
                        there.string(), human_bytes(space.available));
}

}  // namespace shardloom::checkpoint
