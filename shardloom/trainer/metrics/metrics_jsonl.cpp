#include "shardloom/trainer/metrics/metrics_jsonl.h"

#include <cmath>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"

namespace shardloom::trainer {
namespace {

constexpr const char* kIteration = "iteration";

void put_number(OrderedJson& line, const char* key, double value) {
  line[key] = std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

void put_non_finite(OrderedJson& line,
                    std::initializer_list<std::pair<const char*, double>> values) {
  for (const auto& [key, value] : values) {
    if (!std::isfinite(value)) line["non_finite"][key] = fmt::format("{}", value);
  }
}

bool is_kept(std::string_view line, int64_t first_iteration) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto iteration = json.find(kIteration);
  return iteration != json.end() && iteration->is_number_integer() &&
         iteration->get<int64_t>() < first_iteration;
}

std::string kept_lines(std::string_view content, int64_t first_iteration) {
  std::string kept;
  for (size_t end; (end = content.find('\n')) != std::string_view::npos;) {
    const std::string_view line = content.substr(0, end + 1);
    if (is_kept(line, first_iteration)) kept += line;
    content.remove_prefix(line.size());
  }
  return kept;
}

std::filesystem::path prepare(const std::filesystem::path& path, int64_t first_iteration) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return path;
  try {
    const std::string content = read_file(path);
    const std::string kept = kept_lines(content, first_iteration);
    if (kept != content) write_file_atomically(path, kept);
  } catch (const std::system_error& error) {
    throw ConfigError("metrics_dir: {}", error.what());
  }
  return path;
}

}  // namespace

std::string metrics_json_line(const StepMetrics& m) {
  OrderedJson line;
  line[kIteration] = m.iteration;
  put_number(line, "loss", m.loss);
  if (m.aux_loss) put_number(line, "aux_loss", *m.aux_loss);
  for (const auto& [name, value] : m.logged) put_number(line["logged"], name.c_str(), value);
  put_number(line, "grad_norm", m.grad_norm);
  put_number(line, "lr", m.learning_rate);
  put_number(line, "elapsed_ms", m.elapsed_ms);
  line["consumed_samples"] = m.consumed_samples;
  line["tokens"] = m.tokens;
  line["memory_allocated"] = m.memory_allocated;
  line["memory_reserved"] = m.memory_reserved;
  if (m.skipped_samples != 0) line["skipped_samples"] = m.skipped_samples;
  if (m.samples_without_target != 0) line["samples_without_target"] = m.samples_without_target;
  if (m.expert_load) {
    line["expert_load"]["max_over_mean"] = m.expert_load->max_over_mean;
    line["expert_load"]["unused"] = m.expert_load->unused;
  }
  if (m.offload) {
    OrderedJson& offload = line["offload"];
    offload["bytes_to_host"] = m.offload->bytes_to_host;
    offload["bytes_to_device"] = m.offload->bytes_to_device;
    offload["late_fetches"] = m.offload->late_fetches;
    put_number(offload, "wait_ms", m.offload->wait_ms);
  }
  put_non_finite(line, {{"loss", m.loss},
                        {"aux_loss", m.aux_loss.value_or(0)},
                        {"grad_norm", m.grad_norm},
                        {"lr", m.learning_rate},
                        {"elapsed_ms", m.elapsed_ms}});
  return line.dump() + "\n";
}

std::string metrics_json_line(const ValidationMetrics& metrics) {
  OrderedJson line;
  line[kIteration] = metrics.iteration;
  const char* const loss = metrics.is_test ? "test_loss" : "validation_loss";
  line[metrics.is_test ? "test_steps" : "validation_steps"] = metrics.steps;
  put_number(line, loss, metrics.loss);
  put_non_finite(line, {{loss, metrics.loss}});
  return line.dump() + "\n";
}

JsonlSink::JsonlSink(const std::filesystem::path& metrics_dir, int64_t first_iteration)
    : file_(prepare(metrics_dir / kMetricsFileName, first_iteration)) {}

}  // namespace shardloom::trainer
