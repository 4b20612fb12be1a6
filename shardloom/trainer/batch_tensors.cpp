#include "shardloom/trainer/batch_tensors.h"

namespace shardloom::trainer {

models::TensorMap to_tensors(data::Batch&& batch) {
  models::TensorMap tensors;
  for (auto& [name, given] : batch.arrays) {
    // The tensor's deleter keeps the array alive.
    auto array = std::make_shared<data::Array>(std::move(given));
    const bool ints = array->dtype == data::DType::kInt64;
    void* values =
        ints ? static_cast<void*>(array->ints.data()) : static_cast<void*>(array->floats.data());
    tensors.emplace(name, at::from_blob(
                              values, array->shape, [array](void*) {},
                              at::TensorOptions().dtype(ints ? at::kLong : at::kFloat)));
  }
  return tensors;
}

}  // namespace shardloom::trainer
