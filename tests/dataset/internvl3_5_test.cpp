#include "shardloom/data/datasets/internvl3_5.h"

#include <bit>
#include <cstring>

#include "shardloom/base/json.h"
#include "shardloom/data/model_facts.h"
#include "shardloom/data/sha256.h"
#include "tests/dataset/helpers.h"

namespace shardloom::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

int64_t count_ids(const Sample& sample, int64_t id) {
  const auto& ids = sample.arrays.at("input_ids").ints;
  return std::count(ids.begin(), ids.end(), id);
}

int64_t count_targets(const Sample& sample) {
  const auto& labels = sample.arrays.at("labels").ints;
  return static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), -100);
}

int64_t length_of(const Sample& sample) { return sample.arrays.at("input_ids").shape.at(0); }

constexpr int64_t kContextId = 762;  // of the tiny tokenizer
constexpr int64_t kPadId = 734;

config::DatasetParam tiny_param() {
  config::DatasetParam param = param_for(tiny_example("data/train.jsonl"), 256);
  param.basic_parameters.dataset_dir = tiny_example("data").string();
  return param;
}

// Ids, labels, mask and pixels of four rows, made by the reference implementation (Pillow,
// transformers) in float32.
TEST(InternVL35Golden, RowsAreBitEqual) {
  const Json golden = read_json_file(test_data("golden_rows.json"), ExitCode::kData);
  config::DatasetParam param = tiny_param();
  param.pad_to = "cutoff_len";
  const InternVL35Dataset dataset(param, read_model_facts(tiny_example("model")));
  ASSERT_EQ(dataset.size(), 252);
  std::vector<Sample> samples;
  for (const int64_t row : golden["rows"]) samples.push_back(dataset.get(row));
  const Batch batch = dataset.collate(samples);
  for (const char* name : {"input_ids", "labels", "attention_mask"}) {
    std::vector<int64_t> expected;
    for (const auto& row : golden[name]) expected.insert(expected.end(), row.begin(), row.end());
    EXPECT_EQ(batch.arrays.at(name).ints, expected) << name;
    EXPECT_THAT(batch.arrays.at(name).shape, ElementsAre(4, 256));
  }
  const Array& pixels = batch.arrays.at("pixel_values");
  ASSERT_THAT(pixels.shape, ElementsAre(4, 3, 112, 112));
  const size_t tile = 3 * 112 * 112;
  for (size_t i = 0; i < 4; ++i) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(pixels.floats.data() + i * tile);
    EXPECT_EQ(sha256_hex({bytes, tile * sizeof(float)}), golden["pixel_values_sha256"][i])
        << "tile " << i;
  }
  EXPECT_THAT(batch.arrays.at("image_flags").ints, ElementsAre(1, 1, 1, 1));
}

// The 17 lines about tags and pictures: tokens of pictures in the sample, or the error.
TEST(InternVL35Tags, EachLineGivesItsTokensOrAnError) {
  const auto path = test_data("DATA-03/tags.jsonl");
  const InternVL35Dataset dataset(param_for(path), facts_448());
  const std::map<int64_t, int64_t> context_tokens = {{1, 256},  {2, 256}, {5, 256}, {6, 256},
                                                     {8, 0},    {9, 0},   {10, 0},  {11, 256},
                                                     {13, 256}, {14, 512}};
  const std::map<int64_t, std::string> errors = {
      {3, "2 <image> tags"}, {4, "1 <image> tag"},    {7, "1 <image> tag"},
      {12, "turn 0 is gpt"}, {15, "nope/absent.png"}, {16, "leaves the image root"},
      {17, "is a directory"}};
  for (const auto& [line, tokens] : context_tokens) {
    const Sample sample = dataset.get(line - 1);
    EXPECT_EQ(count_ids(sample, kContextId), tokens) << "line " << line;
    EXPECT_EQ(sample.arrays.at("image_flags").ints,
              tokens == 0 ? std::vector<int64_t>{0}
                          : std::vector<int64_t>(static_cast<size_t>(tokens / 256), 1));
  }
  for (const auto& [line, text] : errors) {
    EXPECT_THAT(data_error_of([&] { dataset.get(line - 1); }),
                AllOf(StartsWith(fmt::format("{}:{}: ", path.string(), line)), HasSubstr(text)));
  }
}

TEST(InternVL35Tags, TagInTheAnswerIsSupervisedText) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-03/tags.jsonl")), facts_448());
  const SampleView view = dataset.view(4);
  EXPECT_THAT(view.text, HasSubstr("assistant\nIt is <image>.<|im_end|>"));
  EXPECT_GT(count_targets(view.sample), 5);
}

TEST(InternVL35Tags, TwoPicturesComeInTheirOrder) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-03/tags.jsonl")), facts_448());
  const SampleView view = dataset.view(13);
  ASSERT_EQ(view.pictures.size(), 2);
  EXPECT_THAT(view.pictures[0].path, HasSubstr("a.png"));
  EXPECT_THAT(view.pictures[1].path, HasSubstr("b.png"));
  EXPECT_NE(view.pictures[0].tile_sha256, view.pictures[1].tile_sha256);
  const auto& both = view.sample.arrays.at("pixel_values").floats;
  const auto first = dataset.get(0).arrays.at("pixel_values").floats;
  EXPECT_TRUE(std::equal(first.begin(), first.end(), both.begin()));
}

// Truncation at 1024 tokens with 256 tokens a picture.
TEST(InternVL35Truncation, LabelsMayBeCutPicturesMayNot) {
  const auto path = test_data("DATA-05/masked.jsonl");
  const InternVL35Dataset dataset(param_for(path, 1024), facts_448());
  const Sample masked = dataset.get(0);
  EXPECT_EQ(length_of(masked), 1024);
  EXPECT_TRUE(masked.is_truncated);
  EXPECT_EQ(count_targets(masked), 0);
  EXPECT_EQ(count_ids(masked, kContextId), 256);
  EXPECT_FALSE(dataset.get(1).is_truncated);
  EXPECT_GT(count_targets(dataset.get(1)), 0);
  EXPECT_THAT(data_error_of([&] { dataset.get(2); }),
              AllOf(StartsWith(path.string() + ":3: "), HasSubstr("1 tiles, 258 tokens"),
                    HasSubstr("cutoff_len is 1024")));
  const Sample supervised = dataset.get(3);
  EXPECT_EQ(length_of(supervised), 1024);
  EXPECT_NE(supervised.arrays.at("labels").ints.back(), -100);
}

TEST(InternVL35Truncation, BlockMayEndExactlyAtTheLimit) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "x.jsonl",
      R"({"image": "a.png", "conversations": [{"from": "human", "value": "<image>\nColour?"}]})");
  const InternVL35Dataset whole(param_for(path), facts_448());
  const auto ids = whole.get(0).arrays.at("input_ids").ints;
  const auto end =
      std::find(ids.rbegin(), ids.rend(), kContextId).base() + 1 - ids.begin();  // behind </img>
  EXPECT_EQ(length_of(InternVL35Dataset(param_for(path, end), facts_448()).get(0)), end);
  EXPECT_THROW(InternVL35Dataset(param_for(path, end - 1), facts_448()).get(0), DataError);
}

TEST(InternVL35Record, EmptyAnswerHasOneTargetAndHumanAloneNone) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-04/roles.jsonl")), facts_448());
  EXPECT_EQ(count_targets(dataset.get(13)), 1);
  EXPECT_EQ(count_targets(dataset.get(1)), 0);
  EXPECT_GT(count_targets(dataset.get(15)), 1);
  EXPECT_THAT(dataset.view(16).text,
              StartsWith("<|im_start|>system\n<|im_end|>\n<|im_start|>user\na"));
}

TEST(InternVL35Record, TypedTokensAreRefusedOrText) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "x.jsonl",
      R"({"image": "a.png", "conversations": [{"from": "human", "value": "<image>\n<IMG_CONTEXT> <|endoftext|>"}, {"from": "gpt", "value": "<|im_end|>"}]})");
  config::DatasetParam param = param_for(path);
  EXPECT_THAT(data_error_of([&] { InternVL35Dataset(param, facts_448()).get(0); }),
              AllOf(StartsWith(path.string() + ":1: turn 0"), HasSubstr("<IMG_CONTEXT>")));
  param.structural_tokens = "plain";
  const InternVL35Dataset plain(param, facts_448());
  const Sample sample = plain.get(0);
  EXPECT_EQ(count_ids(sample, kContextId), 256);
  EXPECT_EQ(count_ids(sample, kPadId), 0);
  const Batch batch = plain.collate({sample});
  EXPECT_EQ(std::count(batch.arrays.at("attention_mask").ints.begin(),
                       batch.arrays.at("attention_mask").ints.end(), 0),
            0);
}

TEST(InternVL35Record, HugeLineIsCutAndTrainsNothing) {
  const TemporaryFolder folder;
  std::string big = R"({"conversations": [{"from": "human", "value": ")";
  for (int i = 0; i < 524288; ++i) big += "x ";
  big += R"("}, {"from": "gpt", "value": "ok"}]})";
  const InternVL35Dataset dataset(param_for(folder.write("x.jsonl", big)), facts_448());
  const Sample sample = dataset.get(0);
  EXPECT_EQ(length_of(sample), 1024);
  EXPECT_EQ(count_targets(sample), 0);
}

TEST(InternVL35Record, IdBeyondTheEmbeddingNamesTheLine) {
  ModelFacts facts = facts_448();
  facts.vocab_rows = 736;  // <|im_end|> is 736
  const auto path = test_data("DATA-07/n1.jsonl");
  const InternVL35Dataset dataset(param_for(path), facts);
  EXPECT_THAT(data_error_of([&] { dataset.get(0); }),
              AllOf(StartsWith(path.string() + ":1: token id 736 (\"<|im_end|>\")"),
                    HasSubstr("736 embedding rows")));
}

class DamagedPicture : public testing::TestWithParam<std::string> {};

TEST_P(DamagedPicture, IsNamedWithLineAndPath) {
  const auto damaged = std::filesystem::path(SHARDLOOM_TEST_DATA) / "images/damaged";
  const TemporaryFolder folder;
  const auto path =
      folder.write("x.jsonl",
                   "\n"
                   R"({"image": ")" +
                       GetParam() + R"(", "conversations": [{"from": "human", "value": "a"}]})");
  config::DatasetParam param = param_for(path);
  param.basic_parameters.dataset_dir = damaged.string();
  const InternVL35Dataset dataset(param, facts_448());
  const std::string picture = (damaged / GetParam()).string();
  EXPECT_THAT(data_error_of([&] { dataset.get(0); }), StartsWith(path.string() + ":2: " + picture));
}

INSTANTIATE_TEST_SUITE_P(Img05,
                         DamagedPicture,
                         testing::Values("empty.jpg",
                                         "html_named.jpg",
                                         "jpeg_no_eoi.jpg",
                                         "jpeg_prog_trunc50.jpg",
                                         "jpeg_trunc60.jpg",
                                         "jpeg_trunc_header.jpg",
                                         "lfs_pointer.png",
                                         "png_bad_crc.png",
                                         "png_trunc70.png"));

TEST(PicturePath, MayNotLeaveTheRoot) {
  const std::filesystem::path root = test_data("images");
  EXPECT_EQ(resolve_picture(root, "x/../a.png", "x:1"), root / "a.png");
  EXPECT_EQ(resolve_picture(root, (root / "a.png").string(), "x:1"), root / "a.png");
  EXPECT_EQ(resolve_picture(root / ".", "a.png", "x:1").lexically_normal(), root / "a.png");
  for (const char* name :
       {"../a.png", "/etc/hostname", "x/../../images2/a.png", "../images2/a.png", ".."}) {
    EXPECT_THAT(data_error_of([&] { resolve_picture(root, name, "x:1"); }),
                HasSubstr("leaves the image root"))
        << name;
  }
  EXPECT_THAT(data_error_of([&] { resolve_picture(root, "s3://bucket/a.png", "x:1"); }),
              HasSubstr("URLs are not read"));
  EXPECT_THAT(data_error_of([&] { resolve_picture(root, std::string("a\0.png", 6), "x:1"); }),
              HasSubstr("NUL"));
}

TEST(PicturePath, RootMayBeRelative) {
  EXPECT_EQ(resolve_picture(".", "images/a.png", "x:1").lexically_normal(), "images/a.png");
  EXPECT_EQ(resolve_picture("data/", "a.png", "x:1"), "data/a.png");
  EXPECT_THROW(resolve_picture("data", "../b.png", "x:1"), DataError);
}

TEST(InternVL35Tiles, SeveralPicturesShareTheTiles) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "x.jsonl",
      R"({"image": "chelsea.jpg", "conversations": [{"from": "human", "value": "a"}]})"
      "\n"
      R"({"image": ["chelsea.jpg", "chelsea.jpg", "chelsea.jpg"], "conversations": [{"from": "human", "value": "a"}]})"
      "\n"
      R"({"image": ["chelsea.jpg", "chelsea.jpg", "chelsea.jpg", "chelsea.jpg"], "conversations": [{"from": "human", "value": "a"}]})");
  config::DatasetParam param = param_for(path, 1024);
  param.basic_parameters.dataset_dir = tiny_example("data/images").string();
  param.max_dynamic_patch = 3;
  param.image_size = 28;  // 1 token a tile
  const InternVL35Dataset dataset(param, facts_448());
  const int64_t alone = dataset.get(0).arrays.at("image_flags").shape[0];
  EXPECT_GT(alone, 1);
  EXPECT_EQ(count_ids(dataset.get(0), kContextId), alone);
  EXPECT_EQ(dataset.get(1).arrays.at("image_flags").shape[0], 3);
  EXPECT_EQ(dataset.get(2).arrays.at("image_flags").shape[0], 4);
}

TEST(InternVL35Options, ImageSizeMustFitThePatches) {
  config::DatasetParam param = param_for(test_data("DATA-07/n1.jsonl"));
  param.image_size = 42;  // 3 x 3 patches cannot be halved
  try {
    const InternVL35Dataset dataset(param, facts_448());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("image_size 42 must be a multiple of 28"));
  }
}

TEST(InternVL35Options, MaxSamplesTakesThePrefix) {
  config::DatasetParam param = param_for(test_data("DATA-07/n5.jsonl"));
  param.basic_parameters.max_samples = 3;
  EXPECT_EQ(InternVL35Dataset(param, facts_448()).size(), 3);
  param.basic_parameters.max_samples = 9;
  EXPECT_EQ(InternVL35Dataset(param, facts_448()).size(), 5);
}

TEST(InternVL35Collate, PadsToTheLongestRowAndJoinsTiles) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-03/tags.jsonl")), facts_448());
  const std::vector<Sample> samples = {dataset.get(7), dataset.get(13),
                                       dataset.get(0)};  // text, two pictures, one
  const Batch batch = dataset.collate(samples);
  const int64_t longest = length_of(samples[1]);
  EXPECT_THAT(batch.arrays.at("input_ids").shape, ElementsAre(3, longest));
  EXPECT_THAT(batch.arrays.at("labels").shape, ElementsAre(3, longest));
  EXPECT_THAT(batch.arrays.at("attention_mask").shape, ElementsAre(3, longest));
  EXPECT_THAT(batch.arrays.at("pixel_values").shape, ElementsAre(4, 3, 448, 448));
  EXPECT_THAT(batch.arrays.at("image_flags").ints, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(batch.sample_indices, ElementsAre(7, 13, 0));
  EXPECT_EQ(batch.sample_places[2], dataset.place(0));
  int64_t tokens = 0;
  int64_t targets = 0;
  for (size_t row = 0; row < 3; ++row) {
    const int64_t length = length_of(samples[row]);
    tokens += length;
    targets += count_targets(samples[row]);
    for (int64_t i = 0; i < longest; ++i) {
      const auto at = static_cast<size_t>(static_cast<int64_t>(row) * longest + i);
      EXPECT_EQ(batch.arrays.at("attention_mask").ints[at], i < length ? 1 : 0);
      if (i < length) continue;
      EXPECT_EQ(batch.arrays.at("input_ids").ints[at], kPadId);
      EXPECT_EQ(batch.arrays.at("labels").ints[at], -100);
    }
  }
  EXPECT_EQ(batch.num_tokens, tokens);
  EXPECT_EQ(batch.num_targets, targets);
}

TEST(InternVL35Collate, WhiteTileStandsInForAMissingPicture) {
  const InternVL35Dataset dataset(param_for(test_data("DATA-03/tags.jsonl")), facts_448());
  const auto pixels = dataset.get(7).arrays.at("pixel_values").floats;
  const float red = (1.0F - 0.485F) / 0.229F;
  EXPECT_NEAR(pixels.front(), red, 1e-6);
  EXPECT_EQ(pixels[448 * 448 - 1], pixels.front());
  EXPECT_NE(pixels[448 * 448], pixels.front());
}

TEST(InternVL35Collate, NoSamplesGiveArraysOfSizeZero) {
  config::DatasetParam param = param_for(test_data("DATA-07/n1.jsonl"), 64);
  const Batch longest = InternVL35Dataset(param, facts_448()).collate({});
  EXPECT_THAT(longest.arrays.at("input_ids").shape, ElementsAre(0, 1));
  EXPECT_THAT(longest.arrays.at("pixel_values").shape, ElementsAre(0, 3, 448, 448));
  EXPECT_THAT(longest.arrays.at("image_flags").shape, ElementsAre(0));
  param.pad_to = "cutoff_len";
  EXPECT_THAT(InternVL35Dataset(param, facts_448()).collate({}).arrays.at("labels").shape,
              ElementsAre(0, 64));
}

TEST(DatasetRegistry, KnowsInternVL35AndNamesItForOthers) {
  const auto dataset = dataset_registry().get("internvl3_5")(
      param_for(test_data("DATA-07/n5.jsonl")), tiny_example("model"));
  EXPECT_EQ(dataset->size(), 5);
  EXPECT_THAT(dataset->fingerprint(), HasSubstr("5 samples of n5.jsonl"));
  try {
    dataset_registry().get("internvl3.5");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("internvl3_5"));
  }
}

}  // namespace
}  // namespace shardloom::data
