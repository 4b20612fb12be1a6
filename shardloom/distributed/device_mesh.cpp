#include "shardloom/distributed/device_mesh.h"

#include <fmt/format.h>

#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::distributed {
namespace {

std::vector<std::string> names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return names;
}

void check_axes(const std::vector<std::string>& names) {
  if (names.empty()) throw ConfigError("a device mesh needs at least one axis");
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (names[i] == names[j]) {
        throw ConfigError("a device mesh with the axes {} uses the name {} twice",
                          shardloom::join(names, ", "), names[i]);
      }
    }
  }
}

}  // namespace

std::vector<int> axis_ranks(const std::vector<int>& sizes,
                            const std::vector<int>& along,
                            int rank) {
  std::vector<int> strides(sizes.size(), 1);
  for (size_t axis = sizes.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * sizes[axis];
  std::vector<int> ranks = {rank};
  for (const int axis : along) ranks[0] -= rank / strides[axis] % sizes[axis] * strides[axis];
  for (const int axis : along) {
    std::vector<int> next;
    for (const int first : ranks) {
      for (int i = 0; i < sizes[axis]; ++i) next.push_back(first + i * strides[axis]);
    }
    ranks = std::move(next);
  }
  return ranks;
}

DeviceMesh::DeviceMesh(std::vector<MeshAxis> axes, c10::Device device)
    : axes_(std::move(axes)), device_(device) {
  check_axes(names_of(axes_));
}

DeviceMesh::DeviceMesh(World& world,
                       const std::vector<std::pair<std::string, int>>& axes,
                       c10::Device device)
    : device_(device) {
  std::vector<std::string> names;
  std::vector<std::string> texts;
  std::vector<int> sizes;
  int64_t product = 1;
  for (const auto& [name, size] : axes) {
    if (size < 1) throw ConfigError("axis {} of a device mesh has the size {}", name, size);
    names.push_back(name);
    texts.push_back(fmt::format("{} {}", name, size));
    sizes.push_back(size);
    product *= size;
  }
  check_axes(names);
  if (product != world.size()) {
    throw ConfigError("a device mesh {} has {} ranks, but the world has {}",
                      shardloom::join(texts, " x "), product, world.size());
  }
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const std::vector<int> ranks = axis_ranks(sizes, {static_cast<int>(axis)}, world.rank());
    axes_.push_back({names[axis], world.make_group(names[axis], ranks)});
  }
}

const std::shared_ptr<Group>& DeviceMesh::group(const std::string& name) const {
  for (const MeshAxis& axis : axes_) {
    if (axis.name == name) return axis.group;
  }
  const std::vector<std::string> names = names_of(axes_);
  throw ConfigError("the device mesh {} has no axis '{}'{}", describe(), name,
                    did_you_mean(name, names));
}

int64_t DeviceMesh::size() const {
  int64_t size = 1;
  for (const MeshAxis& axis : axes_) size *= axis.group->size();
  return size;
}

std::string DeviceMesh::describe() const {
  std::vector<std::string> texts;
  for (const MeshAxis& axis : axes_) {
    texts.push_back(fmt::format("{} {}", axis.name, axis.group->size()));
  }
  return shardloom::join(texts, " x ");
}

}  // namespace shardloom::distributed
