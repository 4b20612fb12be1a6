// What a data set needs to know of the model it feeds, read from the config.json of the model
// folder.
#pragma once

#include <filesystem>

#include <cstdint>
#include <string>

namespace shardloom::data {

struct ModelFacts {
  std::string model_folder;  // tokenizer files are read from here
  int64_t vocab_rows = 0;    // rows of the embedding; ids beyond are an error; 0 = unknown
  int64_t image_size = 448;  // force_image_size
  int64_t patch_size = 14;
  double downsample_ratio = 0.5;
  std::string conv_style = "internvl2_5";
};

// Reads both layouts: remote code (model_type internvl_chat: force_image_size, llm_config,
// vision_config, template) and -HF (model_type internvl: text_config, vision_config with sizes as
// numbers or [height, width]). Throws DataError that names the file and the key when one is missing
// or of the wrong kind.
ModelFacts read_model_facts(const std::filesystem::path& folder);

}  // namespace shardloom::data
