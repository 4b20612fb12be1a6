// docs/megatron.md, written from the tables of flags and keys.
#pragma once

#include <string>

namespace shardloom::config::megatron {

std::string reference_markdown();

}  // namespace shardloom::config::megatron
