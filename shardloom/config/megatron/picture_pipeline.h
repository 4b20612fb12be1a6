// train_pipeline.image of data.json against the one pipeline that the data sets here have: tiles,
// bicubic resize, division by 255, ImageNet mean and standard deviation.
#pragma once

#include "shardloom/config/megatron/data_json.h"

namespace shardloom::config::megatron {

// Reports what would give other pixels. An empty list is the pipeline that there is.
void check_picture_pipeline(const DataJson& data, Problems& problems);

// Side of a tile that data.json asks for: image_size, else the size of Resize, else none.
std::optional<int64_t> tile_size(const MmDatasetParam& dataset);

}  // namespace shardloom::config::megatron
