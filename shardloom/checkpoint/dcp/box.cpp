#include "shardloom/checkpoint/dcp/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "shardloom/checkpoint/dcp/transpose.h"
#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint::dcp {
namespace {

// The dimension along which most boxes begin at different places.
size_t sweep_dim(size_t num_dims, const std::vector<const Box*>& boxes) {
  size_t best = 0;
  size_t most = 0;
  for (size_t dim = 0; dim < num_dims; ++dim) {
    std::set<int64_t> starts;
    for (const Box* box : boxes) starts.insert(box->offsets[dim]);
    if (starts.size() > most) {
      most = starts.size();
      best = dim;
    }
  }
  return best;
}

std::string overlap_problem(size_t num_dims, std::vector<const Box*> boxes) {
  const size_t dim = sweep_dim(num_dims, boxes);
  std::sort(boxes.begin(), boxes.end(),
            [dim](const Box* a, const Box* b) { return a->offsets[dim] < b->offsets[dim]; });
  std::vector<const Box*> open;  // those that reach to where the sweep is
  for (const Box* box : boxes) {
    const int64_t at = box->offsets[dim];
    std::erase_if(open, [&](const Box* b) { return b->offsets[dim] + b->sizes[dim] <= at; });
    for (const Box* other : open) {
      if (intersection(*box, *other)) {
        return fmt::format("the chunks {} and {} overlap", box_text(*other), box_text(*box));
      }
    }
    open.push_back(box);
  }
  return {};
}

struct Axis {
  int64_t size;
  int64_t source_stride;
  int64_t target_stride;
};

// False when neither side runs along the other's rows.
bool copy_transposed(const Axis& outer,
                     const Axis& inner,
                     uint64_t element_bytes,
                     const char* source,
                     char* target) {
  if (outer.source_stride == 1 && inner.target_stride == 1) {
    return transpose(source, inner.source_stride, target, outer.target_stride, outer.size,
                     inner.size, element_bytes);
  }
  if (outer.target_stride == 1 && inner.source_stride == 1) {
    return transpose(source, outer.source_stride, target, inner.target_stride, inner.size,
                     outer.size, element_bytes);
  }
  return false;
}

void copy_axes(
    const Axis* axis, const Axis* last, uint64_t element_bytes, const char* source, char* target) {
  const auto bytes = static_cast<int64_t>(element_bytes);
  if (axis == last && axis->source_stride == 1 && axis->target_stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(axis->size * bytes));
    return;
  }
  if (axis + 1 == last && copy_transposed(*axis, *last, element_bytes, source, target)) return;
  for (int64_t i = 0; i < axis->size; ++i) {
    if (axis == last) {
      std::memcpy(target, source, element_bytes);
    } else {
      copy_axes(axis + 1, last, element_bytes, source, target);
    }
    source += axis->source_stride * bytes;
    target += axis->target_stride * bytes;
  }
}

}  // namespace

std::string box_text(const Box& box) {
  return fmt::format("{} + {}", shape_text(box.offsets), shape_text(box.sizes));
}

bool is_inside(const Box& box, const std::vector<int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (box.offsets[i] < 0 || box.sizes[i] < 0 || box.offsets[i] > shape[i] ||
        box.sizes[i] > shape[i] - box.offsets[i]) {
      return false;
    }
  }
  return true;
}

uint64_t volume(const std::vector<int64_t>& sizes) {
  uint64_t product = 1;
  for (const int64_t size : sizes) product *= static_cast<uint64_t>(size);
  return product;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box shared;
  for (size_t i = 0; i < a.offsets.size(); ++i) {
    const int64_t begin = std::max(a.offsets[i], b.offsets[i]);
    const int64_t end = std::min(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    if (end <= begin) return std::nullopt;
    shared.offsets.push_back(begin);
    shared.sizes.push_back(end - begin);
  }
  return shared;
}

std::string coverage_problem(const std::vector<int64_t>& shape,
                             const std::vector<const Box*>& boxes) {
  std::vector<const Box*> filled;
  uint64_t covered = 0;
  for (const Box* box : boxes) {
    const uint64_t elements = volume(box->sizes);
    if (elements > 0) filled.push_back(box);
    // Overlapping boxes inside the shape may add up to anything.
    if (__builtin_add_overflow(covered, elements, &covered)) covered = UINT64_MAX;
  }
  if (!shape.empty()) {
    std::string overlap = overlap_problem(shape.size(), filled);
    if (!overlap.empty()) return overlap;
  }
  const uint64_t wanted = volume(shape);
  if (covered == wanted) return {};
  return fmt::format("its chunks hold {} elements, the shape {} has {}", covered, shape_text(shape),
                     wanted);
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  uint64_t stride = 1;  // of a shape without elements it may overflow
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
  }
  return strides;
}

void copy_strided(const std::vector<int64_t>& sizes,
                  uint64_t element_bytes,
                  const char* source,
                  const std::vector<int64_t>& source_strides,
                  char* target,
                  const std::vector<int64_t>& target_strides) {
  if (volume(sizes) == 0) return;
  // Neighbouring dimensions that follow each other without a gap on both sides become one, so that
  // runs are as long as they can be.
  std::vector<Axis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Axis axis{sizes[i], source_strides[i], target_strides[i]};
    if (axis.size == 1) continue;
    if (!axes.empty() && axes.back().source_stride == axis.source_stride * axis.size &&
        axes.back().target_stride == axis.target_stride * axis.size) {
      axes.back() = {axes.back().size * axis.size, axis.source_stride, axis.target_stride};
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) axes.push_back({1, 1, 1});
  copy_axes(axes.data(), &axes.back(), element_bytes, source, target);
}

}  // namespace shardloom::checkpoint::dcp
