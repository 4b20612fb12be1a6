// pretrain_transformers.py of MindSpeed-MM on the library: the model of model.json, the data of
// data.json, Megatron's flags.
#include <ATen/ATen.h>

#include "shardloom/trainer/pretrain/pretrain.h"

namespace {

using namespace shardloom;

std::shared_ptr<FSDP2Mixin> model_provider(const PretrainArgs& args) {
  return std::make_shared<TransformersModel>(args);
}

TrainValidTest train_valid_test_datasets_provider(const PretrainArgs& args,
                                                  const DataContext& context) {
  TrainValidTest data;
  data.train = build_mm_dataloader(build_mm_dataset(args), args, context);
  return data;
}

ForwardResult forward_step(DataIterator& data_iterator, models::Model& model) {
  const MicroBatch batch = get_batch(data_iterator);
  return {model.compute_loss(batch.tensors, batch.targets), loss_func};
}

}  // namespace

int main(int argc, char** argv) {
  return pretrain(train_valid_test_datasets_provider, model_provider, forward_step,
                  {argv + 1, argv + argc});
}
