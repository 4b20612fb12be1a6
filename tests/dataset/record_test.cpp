#include "shardloom/data/record.h"

#include "shardloom/data/jsonl.h"
#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using tokenizer::Role;

Record parse(std::string_view line, const RecordFormat& format = {}) {
  return parse_record(line, "x.jsonl:7", format);
}

std::string error_of(std::string_view line, const RecordFormat& format = {}) {
  const std::string text = data_error_of([&] { parse(line, format); });
  EXPECT_THAT(text, StartsWith("x.jsonl:7: "));
  return text;
}

// A record of one exchange with `extra` keys.
std::string exchange_with(const std::string& question,
                          const std::string& answer,
                          const std::string& extra = "") {
  return R"({"conversations": [{"from": "human", "value": ")" + question +
         R"("}, {"from": "gpt", "value": ")" + answer + R"("}])" + extra + "}";
}

class RoleCase : public testing::TestWithParam<int64_t> {};

// What each of the 19 lines gives: the number of messages, or the error.
struct RoleExpectation {
  size_t messages;  // 0 = error
  std::string error;
};

const std::vector<RoleExpectation>& role_expectations() {
  static const std::vector<RoleExpectation> list = {
      {3, ""},
      {1, ""},  // legal, trains nothing and is counted
      {0, "turn 1 is human, but gpt is expected"},
      {0, "turn 0 is gpt, but human is expected"},
      {0, "\"conversations\" is empty"},
      {0, "turn 1: unknown role \"tool\""},
      {0,
       "no \"conversations\" (keys: id, messages); for OpenAI-style records set "
       "data.dataset_param.attr"},
      {0, "turn 0: unknown role \"user\""},
      {0, "turn 0 has no \"value\""},
      {0, "turn 0: \"value\" is null, not a string"},
      {0, "turn 1: \"value\" is a number, not a string"},
      {0, "\"conversations\" is a string, not a list"},
      {0, "turn 2 is system, but human is expected"},
      {2, ""},
      {2, ""},
      {2, ""},
      {3, ""},
      {0, "the record is not a JSON object but a string"},
      {0, "the record is not a JSON object but an array"},
  };
  return list;
}

TEST_P(RoleCase, IsReadOrRefusedByName) {
  const JsonlFiles files({test_data("DATA-04/roles.jsonl")});
  ASSERT_EQ(files.size(), 19);
  const auto& expected = role_expectations()[static_cast<size_t>(GetParam())];
  auto read = [&] { return parse_record(files.line(GetParam()), files.place(GetParam()), {}); };
  if (expected.messages > 0) {
    EXPECT_EQ(read().messages.size(), expected.messages);
  } else {
    EXPECT_THAT(data_error_of(read),
                AllOf(StartsWith(files.place(GetParam()) + ": "), HasSubstr(expected.error)));
  }
}

INSTANTIATE_TEST_SUITE_P(Data04, RoleCase, testing::Range<int64_t>(0, 19));

TEST(Record, KeepsBlanksAndEmptyTexts) {
  const JsonlFiles files({test_data("DATA-04/roles.jsonl")});
  EXPECT_EQ(parse(files.line(13)).messages[1].text, "");
  EXPECT_EQ(parse(files.line(14)).messages[0].text, "");
  EXPECT_EQ(parse(files.line(15)).messages[1].text, "  \n");
  EXPECT_EQ(parse(files.line(16)).messages[0].text, "");
  EXPECT_EQ(parse(files.line(16)).messages[0].role, Role::kSystem);
}

// The 17 lines about tags and pictures; those about the files themselves are in
// internvl3_5_test.cpp.
TEST(RecordTags, MissingTagGoesBeforeTheFirstHumanTurn) {
  const JsonlFiles files({test_data("DATA-03/tags.jsonl")});
  ASSERT_EQ(files.size(), 17);
  EXPECT_EQ(parse(files.line(0)).messages[0].text, "<image>\nName the colour.");
  EXPECT_EQ(parse(files.line(5)).messages[0].text, "<image>\nShow it.");
  EXPECT_EQ(parse(files.line(5)).messages[1].text, "<image>");
  EXPECT_EQ(parse(files.line(10)).messages[0].text, "Be brief.");
  EXPECT_EQ(parse(files.line(10)).messages[1].text, "<image>\nColour?");
  EXPECT_EQ(parse(files.line(12)).messages[0].text, "<image>\n<IMAGE>\nColour?");
  EXPECT_EQ(parse(exchange_with("Compare.", "Same.", R"(, "image": ["a.png", "b.png"])"))
                .messages[0]
                .text,
            "<image>\n<image>\nCompare.");
}

TEST(RecordTags, TagStaysWhereItIs) {
  const JsonlFiles files({test_data("DATA-03/tags.jsonl")});
  EXPECT_EQ(parse(files.line(1)).messages[0].text, "Hello.");
  EXPECT_EQ(parse(files.line(1)).messages[2].text, "<image>\nColour?");
  EXPECT_EQ(parse(files.line(4)).messages[1].text, "It is <image>.");
  EXPECT_THAT(parse(files.line(13)).images, ElementsAre("a.png", "b.png"));
}

TEST(RecordTags, UnequalNumbersAreErrors) {
  const JsonlFiles files({test_data("DATA-03/tags.jsonl")});
  EXPECT_THAT(error_of(files.line(2)), HasSubstr("2 <image> tags in the human turns, but 1 image"));
  EXPECT_THAT(error_of(files.line(3)), HasSubstr("1 <image> tag in the human turns, but 2 images"));
  EXPECT_THAT(error_of(files.line(6)), HasSubstr("1 <image> tag in the human turns, but 0 images"));
  EXPECT_THAT(error_of(files.line(11)), HasSubstr("turn 0 is gpt"));
}

TEST(RecordTags, TagOfATextRecordIsTextWhenAllowed) {
  const JsonlFiles files({test_data("DATA-03/tags.jsonl")});
  const RecordFormat plain{.structural_tokens_as_text = true};
  EXPECT_EQ(parse(files.line(6), plain).messages[0].text, "What does <image> mean in a prompt?");
  EXPECT_THAT(error_of(files.line(2), plain), HasSubstr("2 <image> tags"));
}

TEST(RecordTags, EmptyImageMeansText) {
  const JsonlFiles files({test_data("DATA-03/tags.jsonl")});
  for (const int64_t line : {7, 8, 9}) {
    EXPECT_TRUE(parse(files.line(line)).images.empty());
    EXPECT_EQ(parse(files.line(line)).messages[0].text, "Hi.");
  }
}

TEST(Record, ImageOfAWrongKindIsNamed) {
  EXPECT_THAT(error_of(exchange_with("a", "b", R"(, "image": 4)")),
              HasSubstr("\"image\" is a number"));
  EXPECT_THAT(error_of(exchange_with("a", "b", R"(, "image": ["a.png", null])")),
              HasSubstr("\"image\"[1] is null"));
  EXPECT_THAT(error_of(exchange_with("a", "b", R"(, "image": ["", "a.png"])")),
              HasSubstr("\"image\"[0] is empty"));
}

TEST(Record, VideoIsNotSupported) {
  EXPECT_THAT(error_of(exchange_with("<video>\\nWhat?", "x", R"(, "video": "v.mp4")")),
              HasSubstr("\"video\" is not supported yet"));
  EXPECT_NO_THROW(parse(exchange_with("What?", "x", R"(, "video": "", "audio": null)")));
}

TEST(Record, ImagesKeyNeedsTheAttribute) {
  const std::string line = exchange_with("a", "b", R"(, "images": ["a.png"])");
  EXPECT_THAT(error_of(line), HasSubstr("data.dataset_param.attr.images: images"));
  RecordFormat format;
  format.attr.images = "images";
  EXPECT_THAT(parse(line, format).images, ElementsAre("a.png"));
  EXPECT_THAT(error_of(exchange_with("a", "b", R"(, "image": "a.png")"), format),
              HasSubstr("attr.images: image"));
}

TEST(Record, AttributesRenameKeysAndRoles) {
  RecordFormat format;
  format.attr.messages = "messages";
  format.attr.role_tag = "role";
  format.attr.content_tag = "content";
  format.attr.user_tag = "user";
  format.attr.assistant_tag = "assistant";
  format.attr.system = "instructions";
  const Record record = parse(
      R"({"instructions": "Be brief.", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
      format);
  ASSERT_EQ(record.messages.size(), 3);
  EXPECT_EQ(record.messages[0].role, Role::kSystem);
  EXPECT_EQ(record.messages[0].text, "Be brief.");
  EXPECT_EQ(record.messages[2].role, Role::kAssistant);
  EXPECT_THAT(error_of(R"({"instructions": "s", "messages": [{"role": "system", "content": "t"}]})",
                       format),
              HasSubstr("turn 0 is system"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "human", "content": "a"}]})", format),
              HasSubstr("unknown role \"human\"; roles are user, assistant and system"));
}

TEST(Record, SystemAloneIsAnError) {
  EXPECT_THAT(error_of(R"({"conversations": [{"from": "system", "value": "s"}]})"),
              HasSubstr("no human turn"));
}

class StructuralToken : public testing::TestWithParam<std::string> {};

TEST_P(StructuralToken, IsRefusedWithTurnAndTokenOrKeptAsText) {
  for (const size_t turn : {size_t{0}, size_t{1}}) {
    const std::string typed = "x " + GetParam() + " y";
    const std::string line = turn == 0 ? exchange_with(typed, "b") : exchange_with("a", typed);
    EXPECT_THAT(error_of(line),
                AllOf(HasSubstr(fmt::format("turn {} ", turn)), HasSubstr(GetParam())));
    EXPECT_EQ(parse(line, {.structural_tokens_as_text = true}).messages[turn].text, typed);
  }
}

INSTANTIATE_TEST_SUITE_P(Data06,
                         StructuralToken,
                         testing::ValuesIn(tokenizer::structural_tokens()));

TEST(Record, ContentTokensAreAllowed) {
  const std::string answer = "<think>hm</think><ref>cat</ref><box>[[1,2,3,4]]</box><tool_call>";
  EXPECT_EQ(parse(exchange_with("a", answer)).messages[1].text, answer);
}

}  // namespace
}  // namespace shardloom::data
