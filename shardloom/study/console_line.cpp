#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "shardloom/base/strings.h"
#include "shardloom/study/log_record.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

constexpr std::string_view kIteration = "iteration";
constexpr std::string_view kMemory = "memory (MB) |";
constexpr std::string_view kDigits = "0123456789";

// Where a record begins, and where its fields do.
struct Anchor {
  enum class Kind { kStep, kMemory };
  Kind kind = Kind::kStep;
  size_t begin = 0;
  size_t fields = 0;
  int64_t iteration = 0;
  bool follows_time = false;  // "[2026-08-08 12:00:00] iteration"
};

void skip_spaces(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
}

std::optional<int64_t> take_integer(std::string_view& text) {
  const size_t length = std::min(text.find_first_not_of(kDigits), text.size());
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + length, value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

// "iteration        1/     220 |", not the end of another word.
std::optional<Anchor> step_anchor(std::string_view line, size_t begin) {
  if (begin > 0 && std::isalnum(static_cast<unsigned char>(line[begin - 1])) != 0)
    return std::nullopt;
  std::string_view rest = line.substr(begin + kIteration.size());
  if (!rest.starts_with(' ')) return std::nullopt;
  skip_spaces(rest);
  const auto iteration = take_integer(rest);
  if (!iteration || !rest.starts_with('/')) return std::nullopt;
  rest.remove_prefix(1);
  skip_spaces(rest);
  if (!take_integer(rest)) return std::nullopt;
  skip_spaces(rest);
  if (!rest.starts_with('|')) return std::nullopt;
  return Anchor{.kind = Anchor::Kind::kStep,
                .begin = begin,
                .fields = line.size() - rest.size() + 1,
                .iteration = *iteration,
                .follows_time = line.substr(0, begin).ends_with("] ")};
}

std::vector<Anchor> find_anchors(std::string_view line) {
  std::vector<Anchor> anchors;
  size_t step = line.find(kIteration);
  size_t memory = line.find(kMemory);
  while (step != std::string_view::npos || memory != std::string_view::npos) {
    if (memory < step) {
      const size_t fields = memory + kMemory.size();
      anchors.push_back({.kind = Anchor::Kind::kMemory, .begin = memory, .fields = fields});
      memory = line.find(kMemory, fields);
    } else {
      if (const auto anchor = step_anchor(line, step)) anchors.push_back(*anchor);
      step = line.find(kIteration, step + kIteration.size());
    }
  }
  return anchors;
}

// A field "name: value |" of a record.
class Fields {
 public:
  Fields(std::string_view text, bool ended) : text_(text), ended_(ended) {}

  bool has(std::string_view name) const { return find(name).has_value(); }
  // Nothing when the field is absent, or not closed, or not a number from end to end.
  std::optional<double> number(std::string_view name) const {
    const auto value = find(name);
    return value && value->closed ? parse_number(value->text) : std::nullopt;
  }

 private:
  struct Value {
    std::string_view text;
    bool closed = false;
  };

  std::optional<Value> find(std::string_view name) const {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const size_t bar = rest.find('|');
      const bool is_last = bar == std::string_view::npos;
      const std::string_view field = rest.substr(0, bar);
      const size_t colon = field.find(':');
      if (colon != std::string_view::npos && trim(field.substr(0, colon)) == name) {
        return Value{trim(field.substr(colon + 1)), is_last ? ended_ : field.ends_with(' ')};
      }
      if (is_last) break;
      rest.remove_prefix(bar + 1);
    }
    return std::nullopt;
  }

  std::string_view text_;
  bool ended_;
};

// What stands behind the place of the loss in a record without it tells why it is absent.
std::optional<double> missing_loss(const Fields& fields, LineRecords& found) {
  const auto nan_iterations = fields.number("number of nan iterations");
  if (fields.has("loss") || (!nan_iterations && !fields.number("grad norm"))) {
    found.cut = true;
    return std::nullopt;
  }
  if (nan_iterations.value_or(0) > 0) return std::numeric_limits<double>::quiet_NaN();
  found.without_loss = true;
  return std::nullopt;
}

void read_step(const Anchor& anchor, const Fields& fields, LineRecords& found) {
  // "iteration 3/9 |" alone may be any text.
  if (!anchor.follows_time && !fields.has("consumed samples")) return;
  const auto elapsed = fields.number("elapsed time per iteration (ms)");
  if (!elapsed) {
    found.cut = true;
    return;
  }
  auto loss = fields.number("loss");
  if (!loss) loss = missing_loss(fields, found);
  if (!loss) return;
  StepRecord record{.loss = *loss, .elapsed_ms = elapsed, .grad_norm = fields.number("grad norm")};
  if (!std::isfinite(*elapsed)) record.elapsed_ms.reset();
  found.steps.push_back({anchor.iteration, record});
}

void read_memory(const Fields& fields, LineRecords& found) {
  const auto allocated = fields.number("max allocated");
  const auto reserved = fields.number("max reserved");
  keep_larger(allocated, found.max_allocated_mib);
  keep_larger(reserved, found.max_reserved_mib);
  if (!allocated || !reserved) found.cut = true;
}

}  // namespace

void keep_larger(const std::optional<double>& value, std::optional<double>& peak) {
  if (value && std::isfinite(*value)) peak = std::max(peak.value_or(*value), *value);
}

LineRecords read_console_line(std::string_view line, bool ended) {
  LineRecords found;
  const std::vector<Anchor> anchors = find_anchors(line);
  for (size_t i = 0; i < anchors.size(); ++i) {
    const Anchor& anchor = anchors[i];
    const bool is_last = i + 1 == anchors.size();
    const size_t end = is_last ? line.size() : anchors[i + 1].begin;
    const std::string_view text = line.substr(anchor.fields, end - anchor.fields);
    // Only a memory line ends without " |": its last number needs the line break.
    const bool closed = is_last && ended && anchor.kind == Anchor::Kind::kMemory;
    const Fields fields(text, closed);
    if (anchor.kind == Anchor::Kind::kMemory) {
      read_memory(fields, found);
    } else {
      read_step(anchor, fields, found);
    }
  }
  if (anchors.empty() && !ended) found.cut = line.find("] iteration ") != std::string_view::npos;
  return found;
}

std::string without_ansi(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\033') {
      plain += text[i];
      continue;
    }
    ++i;
    if (i < text.size() && text[i] == '[') {
      do ++i;
      while (i < text.size() && (text[i] < '@' || text[i] > '~'));
    } else if (i < text.size() && text[i] == ']') {
      // A title ends with BEL, or with ESC and a backslash, which the next turn takes off.
      do ++i;
      while (i < text.size() && text[i] != '\a' && text[i] != '\033');
      if (i < text.size() && text[i] == '\033') --i;
    }
  }
  return plain;
}

}  // namespace shardloom::study
