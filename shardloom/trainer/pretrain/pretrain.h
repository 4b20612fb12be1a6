// The Megatron-style path as a library: a program gives the call-backs of pretrain_transformers.py
// and gets a whole training run. `apps/pretrain_transformers` is such a program; docs/migration.md
// shows the Python and the C++ side by side.
//
// Order, on every rank: model_provider; sharding (FSDP2Mixin); train_valid_test_datasets_provider;
// weights; then for each micro batch forward_step and the loss_func that it returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardloom/trainer/forward_step.h"
#include "shardloom/trainer/pretrain/fsdp2_mixin.h"
#include "shardloom/trainer/pretrain/mm_data.h"
#include "shardloom/trainer/pretrain/model_hub.h"

namespace shardloom {

using trainer::DataIterator;
using trainer::ForwardResult;
using trainer::ForwardStep;
using trainer::loss_func;
using trainer::LossReport;
using trainer::MicroBatch;

// The loader of the training set, and the sets that are evaluated whole: the validation set each
// --eval-interval steps, the test set after the last.
using TrainValidTest = trainer::RunData;

using DatasetsProvider = std::function<TrainValidTest(const PretrainArgs&, const DataContext&)>;
using ModelProvider = std::function<std::shared_ptr<FSDP2Mixin>(const PretrainArgs&)>;

// Trains as `args` (the command line behind the program's name) say. One process, one rank of
// several under RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun), or with --nproc N the
// launcher of N. Returns the exit code of the program; errors have been told on stderr.
int pretrain(DatasetsProvider train_valid_test_datasets_provider,
             ModelProvider model_provider,
             ForwardStep forward_step,
             const std::vector<std::string>& args);

// The batch of call-backs that keep to the published ones.
MicroBatch get_batch(DataIterator& data_iterator);

}  // namespace shardloom
