#include "shardloom/trainer/metrics/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <protozero/pbf_writer.hpp>
#include <utility>
#include <vector>

namespace shardloom::trainer {
namespace {

// Field numbers of tensorflow.Event, Summary, Summary.Value and SessionLog.
constexpr protozero::pbf_tag_type kEventWallTime = 1;
constexpr protozero::pbf_tag_type kEventStep = 2;
constexpr protozero::pbf_tag_type kEventFileVersion = 3;
constexpr protozero::pbf_tag_type kEventSummary = 5;
constexpr protozero::pbf_tag_type kEventSessionLog = 7;
constexpr protozero::pbf_tag_type kSummaryValue = 1;
constexpr protozero::pbf_tag_type kValueTag = 1;
constexpr protozero::pbf_tag_type kValueSimple = 2;
constexpr protozero::pbf_tag_type kSessionStatus = 1;
constexpr int kSessionStart = 1;

using Scalars = std::vector<std::pair<const char*, double>>;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string version_event(double wall_time) {
  std::string message;
  protozero::pbf_writer event(message);
  event.add_double(kEventWallTime, wall_time);
  event.add_string(kEventFileVersion, "brain.Event:2");
  return message;
}

// Readers drop all events of this step and later ones that came before.
std::string restart_event(double wall_time, int64_t step) {
  std::string message;
  protozero::pbf_writer event(message);
  event.add_double(kEventWallTime, wall_time);
  event.add_int64(kEventStep, step);
  protozero::pbf_writer session(event, kEventSessionLog);
  session.add_enum(kSessionStatus, kSessionStart);
  return message;
}

std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string message;
  protozero::pbf_writer event(message);
  event.add_double(kEventWallTime, wall_time);
  event.add_int64(kEventStep, step);
  protozero::pbf_writer summary(event, kEventSummary);
  for (const auto& [tag, value] : scalars) {
    protozero::pbf_writer entry(summary, kSummaryValue);
    entry.add_string(kValueTag, tag);
    entry.add_float(kValueSimple, static_cast<float>(value));
  }
  return message;
}

std::string file_name(std::chrono::system_clock::time_point now) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  return fmt::format("events.out.tfevents.{:010}.{}.{}", seconds, host.data(), ::getpid());
}

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

std::string event_record(std::string_view message) {
  const std::string length = little_endian(static_cast<uint64_t>(message.size()));
  std::string record = length + little_endian(masked_crc32c(length));
  record += message;
  return record + little_endian(masked_crc32c(message));
}

TensorBoardSink::TensorBoardSink(const std::filesystem::path& metrics_dir,
                                 int64_t first_iteration,
                                 Clock clock)
    : clock_(std::move(clock)), file_(metrics_dir / file_name(clock_())) {
  file_.append(event_record(version_event(wall_time())));
  if (first_iteration > 1) file_.append(event_record(restart_event(wall_time(), first_iteration)));
}

double TensorBoardSink::wall_time() const {
  return std::chrono::duration<double>(clock_().time_since_epoch()).count();
}

void TensorBoardSink::step(const StepMetrics& m) {
  Scalars scalars = {{"loss", m.loss},
                     {"grad_norm", m.grad_norm},
                     {"lr", m.learning_rate},
                     {"elapsed_ms", m.elapsed_ms},
                     {"memory_allocated_mib", mebibytes(m.memory_allocated)},
                     {"memory_reserved_mib", mebibytes(m.memory_reserved)}};
  if (m.aux_loss) scalars.emplace_back("aux_loss", *m.aux_loss);
  if (m.elapsed_ms > 0) {
    scalars.emplace_back("tokens_per_second", static_cast<double>(m.tokens) * 1e3 / m.elapsed_ms);
  }
  file_.append(event_record(scalars_event(wall_time(), m.iteration, scalars)));
}

void TensorBoardSink::validation(const ValidationMetrics& metrics) {
  file_.append(event_record(
      scalars_event(wall_time(), metrics.iteration,
                    {{metrics.is_test ? "test_loss" : "validation_loss", metrics.loss}})));
}

}  // namespace shardloom::trainer
