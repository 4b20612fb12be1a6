#include "shardloom/study/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/study/log_record.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

constexpr size_t kMaxNamed = 8;  // values a warning lists one by one

std::vector<int64_t> ascending(const std::set<int64_t>& values) {
  return {values.begin(), values.end()};
}

// Collects what the lines tell, and what is odd about it.
class Reader {
 public:
  explicit Reader(const std::string& name) { log_.name = name; }

  void read(std::string_view content) {
    if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
    while (!content.empty()) {
      ++line_;
      const size_t end = content.find('\n');
      const bool ended = end != std::string_view::npos;
      read_line(content.substr(0, end), ended);
      content.remove_prefix(ended ? end + 1 : content.size());
    }
  }

  // For a log without a record: what stands in place of them; empty when nothing does.
  std::string what_is_left_out() const {
    if (!without_loss_lines_.empty()) return "no record in it has a field \"loss\"";
    return cut_lines_.empty() ? "" : "every record in it is cut";
  }

  RunLog finish() {
    warn_of_lines(cut_lines_, "the record is cut and left out");
    warn_of_lines(without_loss_lines_,
                  "the record has no field \"loss\", as of a skipped step, and is left out");
    warn_of_repeated();
    warn_of_not_finite();
    return std::move(log_);
  }

 private:
  // A carriage return ends what a progress bar drew, or stands before the line feed.
  void read_line(std::string_view line, bool ended) {
    for (size_t end; (end = line.find('\r')) != std::string_view::npos;) {
      read_part(line.substr(0, end), true);
      line.remove_prefix(end + 1);
    }
    read_part(line, ended);
  }

  void read_part(std::string_view part, bool ended) {
    std::string plain;
    if (part.find('\033') != std::string_view::npos) {
      plain = without_ansi(part);
      part = plain;
    }
    if (trim(part).starts_with('{')) {
      if (const auto found = read_metrics_line(trim(part))) return take(*found);
    }
    take(read_console_line(part, ended));
  }

  void take(const LineRecords& found) {
    if (found.cut) cut_lines_.insert(line_);
    if (found.without_loss) without_loss_lines_.insert(line_);
    keep_larger(found.max_allocated_mib, log_.max_allocated_mib);
    keep_larger(found.max_reserved_mib, log_.max_reserved_mib);
    for (const auto& [iteration, record] : found.steps) {
      const size_t before = log_.steps.size();
      log_.steps.insert_or_assign(log_.steps.end(), iteration, record);
      if (log_.steps.size() == before) {
        if (repeated_.empty()) first_repeated_line_ = line_;
        repeated_.insert(iteration);
      }
      not_finite_lines_.erase(iteration);
      if (!std::isfinite(record.loss)) not_finite_lines_[iteration] = line_;
      last_iteration_ = iteration;
    }
  }

  void warn_of_lines(const std::set<int64_t>& lines, const char* what) {
    if (lines.empty()) return;
    log_.warnings.push_back(fmt::format("{}: line{} {}: {}", log_.name,
                                        lines.size() == 1 ? "" : "s", ranges_text(ascending(lines)),
                                        what));
  }

  void warn_of_repeated() {
    if (repeated_.empty()) return;
    const bool one = repeated_.size() == 1;
    log_.warnings.push_back(fmt::format(
        "{}: iteration{} {} stand{} more than once (again from line {} on, as after a resume): the "
        "last one counts",
        log_.name, one ? "" : "s", ranges_text(ascending(repeated_)), one ? "s" : "",
        first_repeated_line_));
    const int64_t last = log_.steps.rbegin()->first;
    if (last_iteration_ == last) return;
    log_.warnings.push_back(
        fmt::format("{}: its last run ends at iteration {}; what is behind, up to {}, is of an "
                    "earlier run",
                    log_.name, last_iteration_, last));
  }

  void warn_of_not_finite() {
    const size_t count = not_finite_lines_.size();
    if (count == 0) return;
    std::vector<std::string> named;
    for (const auto& [iteration, line] : not_finite_lines_) {
      if (named.size() == kMaxNamed) break;
      named.push_back(
          fmt::format("{} ({}, line {})", iteration, log_.steps.at(iteration).loss, line));
    }
    std::string text = fmt::format("{}: the loss is not finite at iteration{} {}", log_.name,
                                   count == 1 ? "" : "s", join(named, ", "));
    if (count > kMaxNamed) text += fmt::format(" and {} more", count - kMaxNamed);
    log_.warnings.push_back(text);
  }

  RunLog log_;
  int64_t line_ = 0;
  std::map<int64_t, int64_t> not_finite_lines_;  // iteration -> line of the record that counts
  std::set<int64_t> cut_lines_;
  std::set<int64_t> without_loss_lines_;
  std::set<int64_t> repeated_;
  int64_t first_repeated_line_ = 0;
  int64_t last_iteration_ = 0;
};

std::string why_no_record(std::string_view content, const std::string& left_out) {
  if (content.empty()) return "the file is empty";
  if (!left_out.empty()) return left_out;
  if (content.starts_with("\x1f\x8b"))
    return "it is compressed with gzip (give <(zcat FILE) in its place)";
  const std::string foreign = describe_foreign_content(content.substr(0, 512));
  return foreign.empty() ? "no training record in it" : fmt::format("it is a {}", foreign);
}

}  // namespace

RunLog parse_run_log(std::string_view content, const std::string& name) {
  Reader reader(name);
  reader.read(content);
  const std::string left_out = reader.what_is_left_out();
  RunLog log = reader.finish();
  if (log.steps.empty()) {
    throw DataError(
        "{}: {}. Wanted is the console output of a training run (\"iteration 1/ 200 | ... | loss: "
        "... |\") or its metrics.jsonl.",
        name, why_no_record(content, left_out));
  }
  return log;
}

RunLog read_run_log(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw DataError("{0}: this is a folder; name a log in it, as in {1}", path.string(),
                    (path / "metrics.jsonl").string());
  }
  try {
    // A pipe, as <(zcat run.log.gz) is one, cannot be mapped.
    if (std::filesystem::is_fifo(path, ignored))
      return parse_run_log(read_file(path), path.string());
    return parse_run_log(MappedFile(path).view(), path.string());
  } catch (const std::system_error& error) {
    throw DataError("{}", error.what());
  }
}

}  // namespace shardloom::study
