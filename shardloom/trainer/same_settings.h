// Ranks that are started one by one (torchrun, several hosts) each read a configuration of their
// own.
#pragma once

#include <string>

#include "shardloom/config/train_config.h"
#include "shardloom/distributed/group.h"

namespace shardloom::trainer {

// Collective. Throws on every rank the same ConfigError when a setting has not the same value on
// all ranks: a learning rate of one rank's own would train its shard alone, in silence. Where files
// lie, and how many threads read them, may differ from host to host.
void require_same_settings(distributed::Group& group, const config::TrainConfig& config);

// Collective, likewise. `fingerprint`: data::Dataset::fingerprint(); files of one name may have
// other contents on another host. Throws DataError.
void require_same_data(distributed::Group& group, const std::string& fingerprint);

}  // namespace shardloom::trainer
