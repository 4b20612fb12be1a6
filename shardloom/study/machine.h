// What a report says about the machine.
#pragma once

#include <cstdint>
#include <string>

namespace shardloom::study {

struct Machine {
  std::string cpu;  // "AMD EPYC 7763"; "unknown" where the system does not tell
  int cores = 0;
  uint64_t memory_bytes = 0;
  int threads_per_rank = 0;  // OMP_NUM_THREADS, else the cores divided by the ranks
  std::string date;          // "2026-01-31", UTC
};

Machine describe_machine(int ranks);

}  // namespace shardloom::study
