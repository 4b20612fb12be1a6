#include <cmath>
#include <limits>

#include "shardloom/base/json.h"
#include "shardloom/study/log_record.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

constexpr double kBytesPerMib = 1 << 20;

// A number, or null with its name in the object "non_finite"; nothing when the key is absent.
std::optional<double> number(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  if (!found->is_null()) return std::nullopt;
  const auto names = line.find("non_finite");
  if (names != line.end() && names->is_object() && names->contains(key) &&
      names->at(key).is_string()) {
    if (const auto value = parse_number(names->at(key).get<std::string>())) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> mebibytes(const Json& line, const char* key) {
  const auto bytes = finite(number(line, key));
  return bytes ? std::optional(*bytes / kBytesPerMib) : std::nullopt;
}

}  // namespace

std::optional<LineRecords> read_metrics_line(std::string_view line) {
  LineRecords found;
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    if (!line.starts_with("{\"iteration\"")) return std::nullopt;
    found.cut = true;
    return found;
  }
  const auto iteration = json.find("iteration");
  const auto loss = number(json, "loss");
  if (iteration == json.end() || !iteration->is_number_integer() || !loss) return found;
  found.max_allocated_mib = mebibytes(json, "memory_allocated");
  found.steps.push_back({iteration->get<int64_t>(),
                         {.loss = *loss,
                          .elapsed_ms = finite(number(json, "elapsed_ms")),
                          .allocated_mib = found.max_allocated_mib,
                          .grad_norm = number(json, "grad_norm")}});
  found.max_reserved_mib = mebibytes(json, "memory_reserved");
  return found;
}

}  // namespace shardloom::study
