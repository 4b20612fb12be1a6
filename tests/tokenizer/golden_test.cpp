// Ids that the `tokenizers` package gives.
#include <gtest/gtest.h>

#include <fstream>

#include "shardloom/base/json.h"
#include "tests/tokenizer/test_tokenizers.h"

namespace shardloom::tokenizer {
namespace {

TEST(GoldenTest, Qwen3Vectors) {
  std::ifstream lines(kQwenFolder / "test_vectors.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json vector = Json::parse(line);
    EXPECT_EQ(qwen().encode(vector["text"].get<std::string>()),
              vector["ids"].get<std::vector<int32_t>>())
        << line;
  }
  EXPECT_EQ(count, 200);
}

TEST(GoldenTest, Tok01) {
  const Json expected = read_json_file(kTok01Folder / "expected.json", ExitCode::kData);
  EXPECT_EQ(expected["cases"].size(), 40u);
  for (const Json& entry : expected["cases"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tok01().encode(entry["text"].get<std::string>()), ids) << entry["text"];
    EXPECT_EQ(tok01().decode(ids), entry["decoded"].get<std::string>());
  }
  EXPECT_EQ(tok01().size(), expected["vocab_with_added"].get<int32_t>());
  for (const auto& [token, id] : expected["added"].items()) {
    EXPECT_EQ(tok01().id(token), id.get<int32_t>());
  }
}

// Values of the Qwen3 tokenizer that public documentation and other implementations agree on.
TEST(GoldenTest, Qwen3Facts) {
  EXPECT_EQ(qwen().size(), 151678);
  EXPECT_EQ(qwen().id("!"), 0);
  EXPECT_EQ(qwen().id("Ġ"), 220);
  EXPECT_EQ(qwen().id("Ċ"), 198);
  EXPECT_EQ(qwen().id("<IMG_CONTEXT>"), 151671);
  EXPECT_EQ(qwen().id("<image>"), std::nullopt);
  EXPECT_EQ(qwen().encode(" <img> "), (std::vector<int32_t>{220, 151669, 220}));
  EXPECT_EQ(qwen().encode("<image>\n"), (std::vector<int32_t>{27, 1805, 397}));
  EXPECT_EQ(qwen().encode("<image>"), (std::vector<int32_t>{27, 1805, 29}));
  EXPECT_EQ(qwen().encode(""), std::vector<int32_t>());
}

}  // namespace
}  // namespace shardloom::tokenizer
