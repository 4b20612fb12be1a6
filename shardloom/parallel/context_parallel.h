// Ulysses context parallelism (DeepSpeed-Ulysses, Jacobs et al. 2023): the ranks of a group compute
// the same samples, each a part of every sequence. Attention alone sees whole sequences: heads and
// sequence are exchanged around it, so that each rank has all positions of some heads.
//
// Sequences are cut unevenly where they must be: the first ranks take one position more. What comes
// before the cut is computed by every rank; gradients of all ranks are summed, so nothing is
// scaled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardloom/distributed/group.h"
#include "shardloom/nn/module.h"

namespace shardloom::parallel {

// Where a model's sequences are cut and joined, by names of modules.
struct ContextParallelSeams {
  std::vector<std::string> split_inputs;    // the first input is cut along dim 1
  std::vector<std::string> gather_outputs;  // the first output is joined along dim 1
  std::vector<std::string> attention;       // nn::Attention: q, k, v [B, S, heads, d]
};

// The own part of a tensor along `dim`, as split_evenly() cuts it.
at::Tensor own_part(const at::Tensor& whole, int64_t dim, const distributed::Group& group);

// Installs the wrappers; nothing for a group of one rank. Call before fully_shard. Throws
// ConfigError for a module that does not exist. At run time: ConfigError when the heads do not
// divide among the ranks.
void context_parallel(nn::Module& root,
                      const ContextParallelSeams& seams,
                      const std::shared_ptr<distributed::Group>& group);

}  // namespace shardloom::parallel
