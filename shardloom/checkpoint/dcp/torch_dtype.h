// How PyTorch names element types inside checkpoints.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint::dcp {

// The global of a dtype: "torch float32". Throws CheckpointError for the types that PyTorch lacks
// or packs (F4, F6).
std::string torch_dtype_global(DType dtype);
// Nothing for anything that is no dtype known here.
std::optional<DType> parse_torch_dtype(std::string_view global);
// True for every dtype of PyTorch, those that are not read here (complex128, quantised) too.
bool is_torch_dtype_global(std::string_view global);

// The typed storage of a dtype, "torch FloatStorage"; nothing for those that are saved as untyped
// storages (8-bit floats, unsigned integers above 8 bits).
std::optional<std::string> torch_storage_global(DType dtype);
std::optional<DType> parse_torch_storage(std::string_view global);
bool is_torch_storage_global(std::string_view global);

}  // namespace shardloom::checkpoint::dcp
