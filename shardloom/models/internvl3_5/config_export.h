// config.json of an export, in the layout of the folder that the model was read from or in the
// other one.
#pragma once

#include <cstdint>
#include <string>

#include "shardloom/models/internvl3_5/config.h"

namespace shardloom::models::internvl3_5 {

// In the same layout: the file as it was read, with the number of layers and the type. In the other
// one: every value that read_config() reads, and of the language model all others too; the rest is
// what published folders of that layout have. `image_token_id` (< 0: unknown) and `torch_dtype`
// ("float32") are those of the export. Throws CheckpointError when the other layout has no word for
// what the model is.
std::string export_config(const Config& config,
                          int64_t image_token_id,
                          const std::string& torch_dtype,
                          nn::Layout layout);

}  // namespace shardloom::models::internvl3_5
