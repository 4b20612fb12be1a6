#include "shardloom/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/tokenizer/nfc.h"
#include "tests/tokenizer/test_tokenizers.h"

namespace shardloom::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

std::string nfc(const std::string& text) {
  std::string buffer;
  return std::string(to_nfc(text, buffer));
}

TEST(TokenizerTest, DecodeOfEncodeIsNfc) {
  std::mt19937 random(6);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(qwen().decode(qwen().encode(text)), nfc(text)) << text;
    ASSERT_EQ(tiny().decode(tiny().encode(text)), nfc(text)) << text;
  }
}

// A second call finds the words in the cache.
TEST(TokenizerTest, TheCacheChangesNothing) {
  const Tokenizer fresh = Tokenizer::from_folder(kTok01Folder);
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_text(random);
    const Ids first = fresh.encode(text);
    ASSERT_EQ(fresh.encode(text), first) << text;
  }
  for (std::string word = "a"; word.size() < 40; word += "ab") {
    EXPECT_EQ(fresh.encode(word + " " + word), fresh.encode(word + " " + word));
    EXPECT_EQ(fresh.decode(fresh.encode(word)), word);
  }
}

TEST(TokenizerTest, AddedTokensAreCutFirst) {
  const int32_t image = *qwen().id("<img>");
  EXPECT_EQ(qwen().encode("a<img>b"), (Ids{64, image, 65}));
  EXPECT_EQ(qwen().encode("<img><img>"), (Ids{image, image}));
  EXPECT_EQ(qwen().encode("<img"), (Ids{20092}));
  EXPECT_EQ(qwen().encode("<|im_start|>user\n"), (Ids{151644, 872, 198}));
  // The mark belongs to the piece behind the token: it does not compose with ">".
  const Ids ids = qwen().encode("<img>\u0338");
  EXPECT_EQ(ids.front(), image);
  EXPECT_EQ(qwen().decode(ids), "<img>\u0338");
}

TEST(TokenizerTest, PlainTokensAreText) {
  const int32_t image = *qwen().id("<img>");
  const int32_t end = *qwen().id("<|im_end|>");
  const Ids as_text = qwen().encode_with_plain("<img>x<|im_end|>", {image});
  EXPECT_EQ(as_text.back(), end);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), image), 0);
  EXPECT_EQ(qwen().decode(as_text), "<img>x<|im_end|>");
  EXPECT_EQ(qwen().encode_with_plain("<img>", {}), Ids{image});
}

TEST(TokenizerTest, DecodeLeavesOutSpecialTokens) {
  const Ids ids = qwen().encode("<|im_start|>a<think>b</think><img><|im_end|>");
  EXPECT_EQ(qwen().decode(ids), "<|im_start|>a<think>b</think><img><|im_end|>");
  EXPECT_EQ(qwen().decode(ids, true), "a<think>b</think>");
}

TEST(TokenizerTest, DecodeReplacesHalfACharacter) {
  const Ids ids = qwen().encode("\U0001F60E\u0358");
  ASSERT_GT(ids.size(), 2u);
  const std::string cut = qwen().decode({ids.begin(), ids.end() - 1});
  EXPECT_EQ(cut.substr(cut.size() - 3), "\uFFFD");
}

TEST(TokenizerTest, DecodeRefusesUnknownIds) {
  for (const int32_t id : {-1, 151678, INT32_MAX}) {
    try {
      qwen().decode({0, id});
      FAIL() << id;
    } catch (const DataError& error) {
      EXPECT_EQ(error.what(),
                fmt::format("id {} does not exist; the tokenizer has ids 0 to 151677", id));
    }
  }
}

TEST(TokenizerTest, EncodeRefusesInvalidUtf8) {
  EXPECT_THROW(qwen().encode("abc\xFF"), DataError);
  EXPECT_THROW(qwen().encode("\xED\xA0\x80"), DataError);
  EXPECT_THROW(qwen().encode("\xE4\xB8"), DataError);
}

TEST(TokenizerTest, AddedTokensAreListed) {
  const auto& added = qwen().added_tokens();
  ASSERT_EQ(added.size(), 35u);
  for (const AddedToken& token : added) {
    EXPECT_EQ(qwen().id(token.content), token.id);
    EXPECT_EQ(qwen().encode(token.content), Ids{token.id});
  }
}

TEST(TokenizerTest, OneObjectServesManyThreads) {
  std::vector<std::string> texts;
  std::vector<Ids> wanted;
  std::mt19937 random(8);
  for (int i = 0; i < 300; ++i) {
    texts.push_back(random_text(random, 100));
    wanted.push_back(qwen().encode(texts.back()));
  }
  const Tokenizer fresh = Tokenizer::from_folder(kQwenFolder);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 3 * texts.size(); ++i) {
        const size_t at = (i + t * 71) % texts.size();
        if (fresh.encode(texts[at]) != wanted[at]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(TokenizerTest, CanBeMoved) {
  Tokenizer first = Tokenizer::from_folder(kTok01Folder);
  const Ids ids = first.encode("a man");
  Tokenizer second = std::move(first);
  EXPECT_EQ(second.encode("a man"), ids);
}

}  // namespace
}  // namespace shardloom::tokenizer
