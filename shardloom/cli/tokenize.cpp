#include "shardloom/cli/tokenize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/cli/command.h"

namespace shardloom::cli {
namespace {

constexpr const char* kExample =
    "Example:\n"
    "  echo '{\"text\": \"Hello world\"}' | shardloom tokenize --model models/InternVL3_5-1B\n"
    "  echo '{\"ids\": [9707, 1879]}' | shardloom tokenize --model models/InternVL3_5-1B --decode";

Json parse_line(const std::string& line, const std::string& place) {
  // The parser would take it for the end of the line.
  if (const size_t zero = line.find('\0'); zero != line.npos)
    throw DataError("{}:{}: not valid JSON: a zero byte", place, zero + 1);
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    throw DataError("{}:{}: not valid JSON", place, std::max<size_t>(error.byte, 1));
  }
}

// What decode_lines() and encode_lines() share: calls on_line(object, place), which returns the
// line to write.
template <typename OnLine>
void for_each_line(std::istream& in, std::ostream& out, const std::string& name, OnLine on_line) {
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const std::string place = fmt::format("{}:{}", name, number);
    const Json object = parse_line(line, place);
    if (!object.is_object()) throw DataError("{}: expected an object, found {}", place, line);
    out << on_line(object, place) << '\n';
  }
}

const Json& member(const Json& object, const char* key, const std::string& place) {
  const auto found = object.find(key);
  if (found != object.end()) return *found;
  throw DataError("{}: \"{}\" is missing", place, key);
}

std::vector<int32_t> read_ids(const Json& object, const std::string& place) {
  const Json& list = member(object, "ids", place);
  if (!list.is_array()) throw DataError("{}: \"ids\" is not a list of numbers", place);
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    const bool fits = id.is_number_integer() && id >= 0 && id <= INT32_MAX;
    if (!fits) throw DataError("{}: {} is not a token id", place, id.dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

void encode_lines(const tokenizer::Tokenizer& tokenizer,
                  std::istream& in,
                  std::ostream& out,
                  const std::string& name) {
  for_each_line(in, out, name, [&](const Json& object, const std::string& place) {
    const Json& text = member(object, "text", place);
    if (!text.is_string()) throw DataError("{}: \"text\" is {}, not a text", place, text.dump());
    const auto ids = tokenizer.encode(text.get_ref<const std::string&>());
    return fmt::format("{{\"ids\": [{}]}}", fmt::join(ids, ", "));
  });
}

void decode_lines(const tokenizer::Tokenizer& tokenizer,
                  std::istream& in,
                  std::ostream& out,
                  const std::string& name) {
  for_each_line(in, out, name, [&](const Json& object, const std::string& place) {
    const std::vector<int32_t> ids = read_ids(object, place);
    try {
      return fmt::format("{{\"text\": {}}}", Json(tokenizer.decode(ids)).dump());
    } catch (const DataError& error) {
      throw DataError("{}: {}", place, error.what());
    }
  });
}

void add_tokenize_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Turn JSON lines {\"text\": ...} on stdin into {\"ids\": [...]}");
  auto model = std::make_shared<std::string>();
  auto decode = std::make_shared<bool>(false);
  command->add_option("--model", *model, "Model folder with the tokenizer files")->required();
  command->add_flag("--decode", *decode, "The way back: {\"ids\": [...]} into {\"text\": ...}");
  command->footer(kExample);
  command->callback([model, decode, &action] {
    action = [model, decode] {
      const auto tokenizer = tokenizer::Tokenizer::from_folder(*model);
      (*decode ? decode_lines : encode_lines)(tokenizer, std::cin, std::cout, "<stdin>");
      return static_cast<int>(ExitCode::kOk);
    };
  });
}

}  // namespace shardloom::cli
