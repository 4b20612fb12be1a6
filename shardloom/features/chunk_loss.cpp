#include "shardloom/features/chunk_loss.h"

#include <bit>

#include "shardloom/base/error.h"
#include "shardloom/nn/loss_head.h"

namespace shardloom::features {

void chunk_loss(nn::Module& module, const std::string& name, int64_t rows) {
  auto* head = dynamic_cast<nn::LossHead*>(&module);
  if (head == nullptr) {
    throw ConfigError(
        "chunk loss: {} does not make the loss; chunkloss_plan.apply_module must name the output "
        "layer of the language model",
        name);
  }
  if (rows < 1) throw ConfigError("chunk loss: chunks of {} rows; use 1 or more", rows);
  head->set_chunk_rows(rows);
}

int64_t dynamic_chunk_rows(int64_t total_chunk_size) {
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(total_chunk_size, 0))));
}

}  // namespace shardloom::features
