// Changes of the element type of raw bytes.
#pragma once

#include <string_view>

#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint {

// F64, F32, BF16 and F16: the types that a weight may have.
bool is_weight_type(DType dtype);

// Dense elements, rounded to nearest even, both of is_weight_type(); `target` has room for all. No
// alignment is needed.
void cast_elements(std::string_view source, DType from, char* target, DType to);

}  // namespace shardloom::checkpoint
