// `shardloom launch`, and the same for `shardloom train --nproc N`.
#pragma once

#include <string>
#include <vector>

namespace shardloom::cli {

// Runs `nproc` copies of this program with `arguments` (such as {"train", "train.yaml"}) as the
// ranks of one run on this host; returns the exit code of the whole.
int launch_self(int nproc, const std::vector<std::string>& arguments);

}  // namespace shardloom::cli
