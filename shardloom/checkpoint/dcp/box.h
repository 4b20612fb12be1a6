// Axis-aligned boxes of tensor elements, and copies between strided memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardloom::checkpoint::dcp {

// Elements [offsets[d], offsets[d] + sizes[d]) of every dimension d; of a 0-d tensor, its one
// element.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;

  bool operator==(const Box&) const = default;
};

// "[0, 4] + [2, 3]".
std::string box_text(const Box& box);

// Same number of dimensions, nothing negative, within the shape.
bool is_inside(const Box& box, const std::vector<int64_t>& shape);

// Elements of a box of these sizes, which must not overflow 64 bits.
uint64_t volume(const std::vector<int64_t>& sizes);

// Nothing when the boxes, which have the same number of dimensions, share no element.
std::optional<Box> intersection(const Box& a, const Box& b);

// What keeps the boxes, which are all inside the shape, from covering each element exactly once;
// empty when nothing does. Takes n log n steps for n shards along any one dimension.
std::string coverage_problem(const std::vector<int64_t>& shape,
                             const std::vector<const Box*>& boxes);

// Row-major, in elements.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape);

// Copies a box of these sizes; strides are in elements of `element_bytes`.
void copy_strided(const std::vector<int64_t>& sizes,
                  uint64_t element_bytes,
                  const char* source,
                  const std::vector<int64_t>& source_strides,
                  char* target,
                  const std::vector<int64_t>& target_strides);

}  // namespace shardloom::checkpoint::dcp
