#include "shardloom/tokenizer/chat_template.h"

#include "tests/dataset/helpers.h"

namespace shardloom::tokenizer {
namespace {

using data::tiny_example;
using testing::HasSubstr;

constexpr int64_t kNone = kIgnoredLabel;

class ChatTemplateTest : public testing::Test {
 protected:
  // The ids of tokens given by their text.
  std::vector<int64_t> ids(const std::vector<std::string>& tokens) const {
    std::vector<int64_t> list;
    for (const auto& token : tokens) list.push_back(tokenizer_.id(token).value());
    return list;
  }
  std::vector<int64_t> encoded(const std::string& text) const {
    const auto list = tokenizer_.encode(text);
    return {list.begin(), list.end()};
  }
  std::string text_of(const RenderedChat& chat) const {
    return tokenizer_.decode({chat.ids.begin(), chat.ids.end()});
  }

  Tokenizer tokenizer_ = Tokenizer::from_folder(tiny_example("model"));
  ChatTemplate template_{tokenizer_, "internvl2_5"};
};

TEST_F(ChatTemplateTest, DefaultSystemTextComesFirst) {
  const RenderedChat chat =
      template_.render({{Role::kUser, "Which digit?"}, {Role::kAssistant, "one"}}, {});
  EXPECT_EQ(text_of(chat),
            "<|im_start|>"
            "system\n你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单"
            "位联合开发的"
            "多模态大语言模型。<|im_end|>\n<|im_start|>user\nWhich "
            "digit?<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n");
}

TEST_F(ChatTemplateTest, SystemMessageReplacesTheDefaultEvenWhenEmpty) {
  EXPECT_EQ(text_of(template_.render({{Role::kSystem, ""}, {Role::kUser, "a"}}, {})),
            "<|im_start|>system\n<|im_end|>\n<|im_start|>user\na<|im_end|>\n");
  const ChatTemplate own(tokenizer_, "internvl2_5", "Be brief.");
  EXPECT_EQ(text_of(own.render({{Role::kUser, "a"}}, {})),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na<|im_end|>\n");
}

TEST_F(ChatTemplateTest, AnswerAndEndTokenAreTrained) {
  const RenderedChat chat = template_.render({{Role::kSystem, ""},
                                              {Role::kUser, "a"},
                                              {Role::kAssistant, "The digit is one."},
                                              {Role::kUser, "b"},
                                              {Role::kAssistant, "."}},
                                             {});
  ASSERT_EQ(chat.labels.size(), chat.ids.size());
  std::vector<int64_t> trained = encoded("The digit is one.");
  const int64_t end = tokenizer_.id("<|im_end|>").value();
  trained.push_back(end);
  for (const int64_t id : encoded(".")) trained.push_back(id);
  trained.push_back(end);
  std::vector<int64_t> labels;
  for (size_t i = 0; i < chat.labels.size(); ++i) {
    if (chat.labels[i] == kNone) continue;
    EXPECT_EQ(chat.labels[i], chat.ids[i]);
    labels.push_back(chat.labels[i]);
  }
  EXPECT_EQ(labels, trained);
  EXPECT_EQ(chat.labels.back(), kNone);
  EXPECT_EQ(chat.ids.back(), encoded("\n").at(0));
}

TEST_F(ChatTemplateTest, EmptyAnswerTrainsTheEndTokenOnly) {
  const RenderedChat chat = template_.render({{Role::kUser, "a"}, {Role::kAssistant, ""}}, {});
  const auto trained = std::count_if(chat.labels.begin(), chat.labels.end(),
                                     [](int64_t label) { return label != kNone; });
  EXPECT_EQ(trained, 1);
  EXPECT_EQ(chat.labels[chat.labels.size() - 2], tokenizer_.id("<|im_end|>").value());
}

TEST_F(ChatTemplateTest, ImageTagBecomesItsTokens) {
  const RenderedChat chat =
      template_.render({{Role::kSystem, ""}, {Role::kUser, "<image>\nA <image>."}}, {2, 3});
  EXPECT_EQ(
      text_of(chat),
      "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<img><IMG_CONTEXT><IMG_CONTEXT></img>\nA "
      "<img><IMG_CONTEXT><IMG_CONTEXT><IMG_CONTEXT></img>.<|im_end|>\n");
  ASSERT_EQ(chat.images.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const auto& span = chat.images[i];
    EXPECT_EQ(span.end - span.begin, static_cast<int64_t>(i) + 4);
    EXPECT_EQ(chat.ids[static_cast<size_t>(span.begin)], tokenizer_.id("<img>").value());
    EXPECT_EQ(chat.ids[static_cast<size_t>(span.end) - 1], tokenizer_.id("</img>").value());
  }
}

TEST_F(ChatTemplateTest, TagsOfOtherTurnsAndSurplusTagsAreText) {
  const RenderedChat chat = template_.render(
      {{Role::kSystem, "<image>"}, {Role::kUser, "<image>"}, {Role::kAssistant, "<image>"}}, {1});
  const std::string text = text_of(chat);
  EXPECT_THAT(text, HasSubstr("system\n<image><|im_end|>"));
  EXPECT_THAT(text, HasSubstr("user\n<img><IMG_CONTEXT></img><|im_end|>"));
  EXPECT_THAT(text, HasSubstr("assistant\n<image><|im_end|>"));
  EXPECT_THAT(text_of(template_.render({{Role::kUser, "<image>"}}, {})),
              HasSubstr("user\n<image><|im_end|>"));
}

TEST_F(ChatTemplateTest, TypedStructuralTokensStayText) {
  const std::string typed = "<|im_end|><IMG_CONTEXT><|endoftext|></img>";
  const RenderedChat chat = template_.render({{Role::kSystem, ""}, {Role::kUser, typed}}, {});
  EXPECT_THAT(text_of(chat), HasSubstr("user\n" + typed + "<|im_end|>"));
  for (const char* token : {"<IMG_CONTEXT>", "<|endoftext|>", "</img>"}) {
    EXPECT_EQ(std::count(chat.ids.begin(), chat.ids.end(), tokenizer_.id(token).value()), 0)
        << token;
  }
  EXPECT_EQ(std::count(chat.ids.begin(), chat.ids.end(), tokenizer_.id("<|im_end|>").value()), 2);
}

TEST_F(ChatTemplateTest, ContentTokensBecomeTheirIds) {
  const RenderedChat chat =
      template_.render({{Role::kUser, "a"}, {Role::kAssistant, "<think>x</think><box>"}}, {});
  for (const char* token : {"<think>", "</think>", "<box>"}) {
    EXPECT_EQ(std::count(chat.labels.begin(), chat.labels.end(), tokenizer_.id(token).value()), 1)
        << token;
  }
}

TEST_F(ChatTemplateTest, UnknownStyleIsAConfigError) {
  try {
    const ChatTemplate unknown(tokenizer_, "internvl2_6");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown conv_style \"internvl2_6\""));
  }
}

TEST_F(ChatTemplateTest, FewerTagsThanImagesIsRefused) {
  EXPECT_THROW(template_.render({{Role::kUser, "a"}}, {1}), InternalError);
}

}  // namespace
}  // namespace shardloom::tokenizer
