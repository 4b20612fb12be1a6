// Reading tokenizer files, and what is said of broken ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "tests/testing/temporary_folder.h"
#include "tests/tokenizer/test_tokenizers.h"

namespace shardloom::tokenizer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Change = std::function<void(Json&)>;

const Json& tok01_json() {
  static const Json json = read_json_file(kTok01Folder / "tokenizer.json", ExitCode::kData);
  return json;
}

// What loading the folder fails with, the folder's path cut off.
std::string error_of(const TemporaryFolder& folder) {
  try {
    Tokenizer::from_folder(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    const std::string text = error.what();
    const std::string start = folder.path().string();
    return text.substr(0, start.size()) == start ? text.substr(start.size()) : text;
  }
  return "no error";
}

std::string error_of_json(const Change& change) {
  const TemporaryFolder folder;
  Json json = tok01_json();
  change(json);
  folder.write("tokenizer.json", json.dump());
  return error_of(folder);
}

// The files without tokenizer.json, of the tiny model.
const std::vector<std::string> kSlowFiles = {"vocab.json", "merges.txt", "tokenizer_config.json",
                                             "added_tokens.json", "special_tokens_map.json"};

void write_slow_files(const TemporaryFolder& folder, const std::vector<std::string>& without = {}) {
  for (const std::string& name : kSlowFiles) {
    if (std::find(without.begin(), without.end(), name) == without.end()) {
      folder.write(name, read_file(kTinyFolder / name));
    }
  }
}

void expect_same_as_tiny(const TemporaryFolder& folder) {
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.size(), tiny().size());
  std::mt19937 random(10);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random) + (i % 3 == 0 ? "<img></think>" : "");
    const auto ids = tiny().encode(text);
    ASSERT_EQ(tokenizer.encode(text), ids) << text;
    ASSERT_EQ(tokenizer.decode(ids, true), tiny().decode(ids, true)) << text;
  }
}

TEST(SlowFilesTest, SameAsTokenizerJson) {
  const TemporaryFolder folder;
  write_slow_files(folder);
  expect_same_as_tiny(folder);
}

TEST(SlowFilesTest, AddedTokensJsonWillDo) {
  const TemporaryFolder folder;
  write_slow_files(folder, {"tokenizer_config.json", "special_tokens_map.json"});
  Json special = Json::array();
  for (const AddedToken& token : tiny().added_tokens()) {
    if (token.special) special.push_back({{"content", token.content}});
  }
  const Json map = {{"eos_token", special[0]["content"]}, {"additional_special_tokens", special}};
  folder.write("special_tokens_map.json", map.dump());
  expect_same_as_tiny(folder);
}

TEST(SlowFilesTest, LineEndsOfWindowsWillDo) {
  const TemporaryFolder folder;
  write_slow_files(folder, {"merges.txt"});
  std::string merges;
  for (const char c : read_file(kTinyFolder / "merges.txt")) {
    if (c == '\n') merges += '\r';
    merges += c;
  }
  folder.write("merges.txt", merges);
  expect_same_as_tiny(folder);
}

TEST(SlowFilesTest, NamesWhatIsMissing) {
  const TemporaryFolder empty;
  EXPECT_EQ(
      error_of(empty),
      ": no tokenizer.json; a tokenizer needs tokenizer.json, or vocab.json and merges.txt with "
      "tokenizer_config.json or added_tokens.json");
  const TemporaryFolder no_vocabulary;
  write_slow_files(no_vocabulary, {"vocab.json"});
  EXPECT_THAT(error_of(no_vocabulary), StartsWith(": no vocab.json; "));
  const TemporaryFolder no_merges;
  write_slow_files(no_merges, {"merges.txt"});
  EXPECT_THAT(error_of(no_merges), StartsWith(": no merges.txt; "));
  const TemporaryFolder no_added;
  write_slow_files(no_added, {"tokenizer_config.json", "added_tokens.json"});
  EXPECT_EQ(error_of(no_added),
            ": no added tokens; tokenizer_config.json (with added_tokens_decoder) or "
            "added_tokens.json is needed");
}

TEST(SlowFilesTest, NamesTheBadMergeLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"#version: 0.2\ni t\nit\n",
       "/merges.txt:3: expected two tokens with a blank between, found \"it\""},
      {"i t x\n", "/merges.txt:1: expected two tokens with a blank between, found \"i t x\""},
      {"i t\n\n\nQ z\n", "/merges.txt:4: the merge's product \"Qz\" is not in the vocabulary"},
      {"itz a\n", "/merges.txt:1: the merge's left part \"itz\" is not in the vocabulary"},
      {"version https://git-lfs.github.com/spec/v1\n",
       "/merges.txt: expected merges, found a git-lfs pointer"},
  };
  for (const auto& [merges, error] : cases) {
    const TemporaryFolder folder;
    write_slow_files(folder, {"merges.txt"});
    folder.write("merges.txt", merges);
    EXPECT_THAT(error_of(folder), StartsWith(error));
  }
  const TemporaryFolder twice;
  write_slow_files(twice, {"merges.txt"});
  twice.write("merges.txt", "i t\ni t\n");
  EXPECT_THAT(error_of(twice), HasSubstr("the merge of \"i\" and \"t\" is given twice"));
}

TEST(SlowFilesTest, NamesTheBadConfig) {
  auto error_with = [](const Json& config) {
    const TemporaryFolder folder;
    write_slow_files(folder, {"tokenizer_config.json"});
    folder.write("tokenizer_config.json", config.dump());
    return error_of(folder);
  };
  EXPECT_THAT(
      error_with({{"tokenizer_class", "LlamaTokenizer"}}),
      StartsWith("/tokenizer_config.json: tokenizer_class \"LlamaTokenizer\" is not supported"));
  EXPECT_EQ(error_with({{"added_tokens_decoder", {{"x1", {{"content", "<a>"}}}}}}),
            "/tokenizer_config.json: \"x1\" in added_tokens_decoder is not an id");
  EXPECT_EQ(error_with({{"added_tokens_decoder", {{"734", {{"special", true}}}}}}),
            "/tokenizer_config.json: added token 734 has no \"content\"");
  EXPECT_EQ(error_with({{"added_tokens_decoder", {{"735", {{"content", "<a>"}}}}}}),
            "/tokenizer_config.json: no token has id 734, though ids go up to 735; is the file "
            "complete?");
  EXPECT_EQ(error_with({{"added_tokens_decoder", {{"0", {{"content", "<a>"}}}}}}),
            "/tokenizer_config.json: id 0 is given to both \"!\" and \"<a>\"");
  EXPECT_EQ(error_with({{"added_tokens_decoder", Json::array({1})}}),
            "/tokenizer_config.json: added_tokens_decoder is not an object");
  EXPECT_EQ(error_with(Json::array()), "/tokenizer_config.json: expected an object");
  EXPECT_EQ(error_with({{"tokenizer_class", 1}}),
            "/tokenizer_config.json: tokenizer_class 1 is not a text");
}

TEST(TokenizerJsonTest, MergesMayBePairs) {
  const TemporaryFolder folder;
  Json json = tok01_json();
  for (Json& merge : json["model"]["merges"]) {
    if (merge.is_string()) {
      const std::string both = merge.get<std::string>();
      merge = {both.substr(0, both.find(' ')), both.substr(both.find(' ') + 1)};
    } else {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
  }
  folder.write("tokenizer.json", json.dump());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  for (const char* text : {"the men walk", "a man's hat", "\u4e2d\u6587"}) {
    EXPECT_EQ(tokenizer.encode(text), tok01().encode(text));
  }
}

TEST(TokenizerJsonTest, ByteLevelAloneSplitsAsGpt2) {
  const TemporaryFolder folder;
  Json json = tok01_json();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json["normalizer"] = nullptr;
  folder.write("tokenizer.json", json.dump());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  // No NFC: the letter and its mark stay two code points.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e\u0301 12")), "e\u0301 12");
  EXPECT_EQ(tokenizer.encode("a"), tok01().encode("a"));
}

TEST(TokenizerJsonTest, NormalizedTokensAreFoundInNfc) {
  const TemporaryFolder folder;
  Json json = tok01_json();
  json["added_tokens"].push_back({{"id", 473}, {"content", "caf\u00e9"}, {"normalized", true}});
  json["added_tokens"].push_back({{"id", 474}, {"content", "th\u00e9"}, {"normalized", false}});
  folder.write("tokenizer.json", json.dump());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.encode("cafe\u0301"), std::vector<int32_t>{473});
  EXPECT_EQ(tokenizer.encode("caf\u00e9th\u00e9"), (std::vector<int32_t>{473, 474}));
  EXPECT_NE(tokenizer.encode("the\u0301"), std::vector<int32_t>{474});
}

TEST(TokenizerJsonTest, NormalizedTokensMustDifferInNfc) {
  EXPECT_EQ(
      error_of_json([](Json& j) {
        for (const auto& [id, content] :
             {std::pair(473, "caf\u00e9"), std::pair(474, "cafe\u0301")}) {
          j["added_tokens"].push_back({{"id", id}, {"content", content}, {"normalized", true}});
        }
      }),
      "added token \"cafe\u0301\" is the same as another one in NFC");
}

TEST(TokenizerJsonTest, RefusesByNameWhatItCannotDo) {
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](Json& j) { j["model"]["type"] = "Unigram"; }, "model.type = \"Unigram\""},
      {[](Json& j) { j["model"]["byte_fallback"] = true; }, "model.byte_fallback = true"},
      {[](Json& j) { j["model"]["ignore_merges"] = true; }, "model.ignore_merges = true"},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout = 0.1"},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
       "model.end_of_word_suffix = \"</w>\""},
      {[](Json& j) { j["normalizer"]["type"] = "NFKC"; }, "normalizer = {\"type\":\"NFKC\"}"},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       "pre_tokenizer = {\"type\":\"Metaspace\"}"},
      {[](Json& j) { j["pre_tokenizer"] = nullptr; }, "pre_tokenizer = null"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"].erase(0); },
       "pre_tokenizer.ByteLevel.use_regex = false"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       "pre_tokenizer.Split.behavior = \"Removed\""},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; },
       "pre_tokenizer.Split.invert = true"},
      {[](Json& j) {
         j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
       },
       "pre_tokenizer.Split.pattern = {\"String\":\" \"}"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
       "pre_tokenizer.ByteLevel.add_prefix_space = true"},
      {[](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"}};
       },
       "post_processor = {\"type\":\"TemplateProcessing\"}"},
      {[](Json& j) { j["decoder"]["type"] = "WordPiece"; }, "decoder = "},
  };
  for (const auto& [change, what] : cases) {
    EXPECT_THAT(error_of_json(change), StartsWith("/tokenizer.json: " + what));
    EXPECT_THAT(error_of_json(change), HasSubstr(" is not supported"));
  }
}

TEST(TokenizerJsonTest, RefusesFlagsOfAddedTokensByName) {
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    EXPECT_EQ(
        error_of_json([&](Json& j) { j["added_tokens"][1][flag] = true; }),
        fmt::format("/tokenizer.json: added token \"<|im_start|>\" has \"{}\": true, which is not "
                    "supported",
                    flag));
  }
  EXPECT_EQ(error_of_json([](Json& j) { j["added_tokens"][1]["special"] = 1; }),
            "/tokenizer.json: \"special\" of added token \"<|im_start|>\" is 1, not true or false");
}

TEST(TokenizerJsonTest, ChecksTheIds) {
  EXPECT_EQ(error_of_json([](Json& j) { j["model"]["vocab"]["!"] = 1; }),
            "/tokenizer.json: id 1 is given to both \"!\" and \"\"\"");
  EXPECT_EQ(
      error_of_json([](Json& j) { j["model"]["vocab"]["!"] = 1000000; }),
      "/tokenizer.json: no token has id 0, though ids go up to 1000000; is the file complete?");
  EXPECT_EQ(error_of_json([](Json& j) { j["model"]["vocab"]["!"] = -1; }),
            "/tokenizer.json: id -1 of token \"!\" is out of range");
  EXPECT_EQ(error_of_json([](Json& j) { j["model"]["vocab"]["!"] = 4294967296; }),
            "/tokenizer.json: id 4294967296 of token \"!\" is out of range");
  EXPECT_EQ(error_of_json([](Json& j) { j["model"]["vocab"]["!"] = "0"; }),
            "/tokenizer.json: the id of token \"!\" is \"0\", not a whole number");
  EXPECT_EQ(error_of_json([](Json& j) { j["model"]["vocab"].erase("!"); }),
            "/tokenizer.json: byte 0x21 (\"!\") has no token; this is not a byte-level vocabulary");
  EXPECT_EQ(error_of_json([](Json& j) { j["model"]["vocab"]["\u4e2d"] = 473; }),
            "/tokenizer.json: token \"\u4e2d\" (id 473) is not written in the alphabet of "
            "byte-level BPE");
  EXPECT_EQ(error_of_json([](Json& j) { j["added_tokens"].erase(2); }),
            "/tokenizer.json: no token has id 468, though ids go up to 472; is the file complete?");
  EXPECT_EQ(error_of_json([](Json& j) { j["added_tokens"][0]["content"] = "!"; }),
            "/tokenizer.json: added token \"!\" has id 466, but its text has id 0 already");
  EXPECT_EQ(error_of_json([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }),
            "/tokenizer.json: added token \"<|endoftext|>\" is given twice");
}

TEST(TokenizerJsonTest, ChecksTheMerges) {
  EXPECT_THAT(error_of_json([](Json& j) { j["model"]["merges"][3] = "q"; }),
              StartsWith("/tokenizer.json: model.merges[3]: expected two tokens, found \"q\""));
  EXPECT_THAT(error_of_json([](Json& j) {
                j["model"]["merges"][3] = {"a", 1};
              }),
              StartsWith("/tokenizer.json: model.merges[3]: expected two tokens, found [\"a\",1]"));
  EXPECT_THAT(error_of_json([](Json& j) { j["model"]["merges"][3] = "Q Qq"; }),
              StartsWith("/tokenizer.json: model.merges[3]: the merge's right part \"Qq\" is not "
                         "in the vocabulary"));
  EXPECT_EQ(error_of_json([](Json& j) { j["model"].erase("merges"); }),
            "/tokenizer.json: model.merges is missing");
  EXPECT_EQ(error_of_json([](Json& j) { j["model"].erase("vocab"); }),
            "/tokenizer.json: expected a vocabulary, an object of tokens and their ids");
}

TEST(TokenizerJsonTest, NamesFilesThatAreNotJson) {
  const TemporaryFolder pointer;
  pointer.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_EQ(error_of(pointer),
            "/tokenizer.json: expected JSON, found a git-lfs pointer (run `git lfs pull`)");
  const TemporaryFolder cut;
  cut.write("tokenizer.json", "{\n\"model\": {");
  EXPECT_THAT(error_of(cut), StartsWith("/tokenizer.json:2:"));
  const TemporaryFolder list;
  list.write("tokenizer.json", "[]");
  EXPECT_EQ(error_of(list), "/tokenizer.json: expected an object");
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "tokenizer.json");
  EXPECT_THAT(error_of(folder), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace shardloom::tokenizer
