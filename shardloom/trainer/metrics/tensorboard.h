// TensorBoard event files: records of length, masked CRC32C, a tensorflow.Event message, masked
// CRC32C. The formats: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "shardloom/trainer/metrics/append_file.h"
#include "shardloom/trainer/metrics/sink.h"

namespace shardloom::trainer {

// CRC-32C (Castagnoli), and its masked form as records carry it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// One record of an event file around a serialised message.
std::string event_record(std::string_view message);

using Clock = std::function<std::chrono::system_clock::time_point()>;

// Scalars of each step: loss, aux_loss (if any), grad_norm, lr, elapsed_ms, tokens_per_second,
// memory_allocated_mib, memory_reserved_mib; of each validation: validation_loss. Values are 32-bit
// floats, as TensorBoard keeps them.
class TensorBoardSink : public MetricsSink {
 public:
  // Starts a file events.out.tfevents.<seconds>.<host>.<process> in metrics_dir. When
  // first_iteration is above 1 it tells TensorBoard to forget what earlier files say of that step
  // and later ones. Throws ConfigError.
  TensorBoardSink(const std::filesystem::path& metrics_dir,
                  int64_t first_iteration,
                  Clock clock = std::chrono::system_clock::now);

  void step(const StepMetrics& metrics) override;
  void validation(const ValidationMetrics& metrics) override;

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  double wall_time() const;

  Clock clock_;
  AppendFile file_;
};

}  // namespace shardloom::trainer
