// One prepared sample as text or JSON (`shardloom data show`).
#pragma once

#include <string>

#include "shardloom/base/json.h"
#include "shardloom/data/dataset.h"

namespace shardloom::data {

// {"index", "place", "tokens", "targets", "truncated", "text", "input_ids", "labels", "tiles",
// "images": [{"path", "width", "height", "tile_sha256": [...]}]}
OrderedJson to_json(const SampleView& view);

// The same for people: runs of equal label state and of picture tokens are folded.
std::string to_text(const SampleView& view);

}  // namespace shardloom::data
