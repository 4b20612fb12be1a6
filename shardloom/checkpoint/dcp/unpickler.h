// Restricted unpickler: reads the opcodes of protocols 2 to 5 that torch.save and the .metadata of
// a distributed checkpoint use, and builds a PickleTree. It runs nothing: a global is only a name,
// and one that is not on a fixed list is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardloom/checkpoint/dcp/pickle_tree.h"

namespace shardloom::checkpoint::dcp {

struct PickleLimits {
  uint64_t max_bytes = uint64_t{1} << 30;
  // Of the tree as a walk sees it, where what is shared counts each time: a small pickle can
  // stand for an endless one.
  uint64_t max_nodes = 100'000'000;
  uint32_t max_depth = 100;
};

// `bytes` is one whole pickle. `place` names it in errors: CheckpointError with place, byte offset,
// opcode and cause.
PickleTree unpickle(std::string_view bytes,
                    const std::string& place,
                    const PickleLimits& limits = {});

// What is on the list: "torch Size", "collections OrderedDict", "torch float32", ...
bool is_known_global(std::string_view global);

}  // namespace shardloom::checkpoint::dcp
