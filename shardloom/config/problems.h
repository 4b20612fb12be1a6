// Faults and warnings of a configuration, each with its place; reported together.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardloom::config {

// Where a value comes from: "run.yaml:12:7", or "override training.lr=1e-4" (line 0).
struct Place {
  std::shared_ptr<const std::string> origin;
  int line = 0;    // from 1
  int column = 0;  // from 1, in bytes

  std::string str() const;
};

struct Problem {
  Place place;
  std::string message;
};

class Problems {
 public:
  void error(const Place& place, std::string message) {
    errors_.push_back({place, std::move(message)});
  }
  void warning(const Place& place, std::string message) {
    warnings_.push_back({place, std::move(message)});
  }
  bool ok() const { return errors_.empty(); }
  size_t num_errors() const { return errors_.size(); }
  // "place: message", in the order of the text.
  std::vector<std::string> errors() const;
  std::vector<std::string> warnings() const;
  // Throws one ConfigError with a line for each error, if there is any.
  void throw_if_any() const;

 private:
  std::vector<Problem> errors_;
  std::vector<Problem> warnings_;
};

}  // namespace shardloom::config
