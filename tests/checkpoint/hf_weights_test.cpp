// Folders whose tensors do not fit the model, and all ways in which a parameter is stored.
#include "shardloom/checkpoint/hf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Stored {
  std::string name;
  DType dtype;
  at::Tensor value;
};

// Two parameters: "head" [3, 2] stored as it is, and "experts" [2*2, 2] stored as a transposed
// block for each of 2 experts.
class Weights : public ::testing::Test {
 protected:
  std::vector<nn::WeightSource> sources() const {
    return {{"head", {{"head.weight", {3, 2}}}},
            {"experts", {{"e.0.w", {2, 2}, 0, 0, true}, {"e.1.w", {2, 2}, 2, 0, true}}}};
  }
  std::vector<Stored> good() const {
    return {{"head.weight", DType::kF32, at::arange(6, at::kFloat).view({3, 2})},
            {"e.0.w", DType::kF32, at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({2, 2})},
            {"e.1.w", DType::kF32, at::tensor({5.0f, 6.0f, 7.0f, 8.0f}).view({2, 2})}};
  }

  void write(const std::vector<Stored>& tensors) {
    std::vector<TensorSpec> specs;
    for (const auto& t : tensors) specs.push_back({t.name, t.dtype, t.value.sizes().vec()});
    SafetensorsWriter writer(folder_.path() / "model.safetensors", specs);
    for (const auto& spec : writer.tensors()) {
      for (const auto& t : tensors) {
        if (t.name != spec.name) continue;
        const at::Tensor bytes = t.value.contiguous();
        writer.write(t.name, {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
      }
    }
    writer.finish();
  }

  void load(bool strict = true) {
    HfLoadOptions options;
    options.strict = strict;
    options.verbose = false;
    options.may_ignore = [](const std::string& key) { return key.rfind("cut.", 0) == 0; };
    load_hf_weights(
        HfFolder::open(folder_.path()), [&](nn::Layout) { return sources(); },
        whole_tensors({{"head", &head_}, {"experts", &experts_}}), options);
  }
  std::string load_error(bool strict = true) {
    try {
      load(strict);
      return {};
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }

  TemporaryFolder folder_;
  at::Tensor head_ = at::full({3, 2}, -1.0f);
  at::Tensor experts_ = at::full({4, 2}, -1.0f);
};

TEST_F(Weights, BlocksAreTransposedIntoTheirRows) {
  write(good());
  load();
  EXPECT_TRUE(at::equal(head_, at::arange(6, at::kFloat).view({3, 2})));
  EXPECT_TRUE(at::equal(experts_,
                        at::tensor({1.0f, 3.0f, 2.0f, 4.0f, 5.0f, 7.0f, 6.0f, 8.0f}).view({4, 2})));
}

TEST_F(Weights, OtherFloatTypesAreConverted) {
  for (const auto& [dtype, type] :
       {std::pair{DType::kBF16, at::kBFloat16}, std::pair{DType::kF16, at::kHalf},
        std::pair{DType::kF64, at::kDouble}}) {
    auto tensors = good();
    tensors[0] = {"head.weight", dtype, tensors[0].value.to(type)};
    write(tensors);
    load();
    EXPECT_TRUE(at::equal(head_, at::arange(6, at::kFloat).view({3, 2})));
  }
}

TEST_F(Weights, IntegerOrFp8WeightsAreRefusedByName) {
  auto tensors = good();
  tensors[0] = {"head.weight", DType::kF8E4M3, at::zeros({3, 2}, at::kByte)};
  write(tensors);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("head.weight"), HasSubstr("F8_E4M3")));
}

TEST_F(Weights, EveryMissingAndUnexpectedTensorIsListedBeforeAnythingIsRead) {
  auto tensors = good();
  tensors[1].name = "e.7.w";
  tensors.push_back({"stray", DType::kF32, at::zeros({1})});
  tensors.push_back({"cut.1", DType::kF32, at::zeros({1})});
  write(tensors);
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr("1 missing"), HasSubstr("e.0.w"), HasSubstr("2 unexpected"),
                    HasSubstr("e.7.w"), HasSubstr("stray"), Not(HasSubstr("cut.1"))));
  EXPECT_FLOAT_EQ(head_.max().item<float>(), -1.0f);
}

TEST_F(Weights, LooseLoadTakesWhatFits) {
  auto tensors = good();
  tensors.erase(tensors.begin() + 1);
  write(tensors);
  load(/*strict=*/false);
  EXPECT_FLOAT_EQ(head_[2][1].item<float>(), 5.0f);
  EXPECT_FLOAT_EQ(experts_[0][0].item<float>(), -1.0f);
  EXPECT_FLOAT_EQ(experts_[2][0].item<float>(), 5.0f);
}

// A run would begin with random weights.
TEST_F(Weights, NothingThatFitsIsAnErrorEvenWhenLoose) {
  write({{"stray", DType::kF32, at::zeros({1})}});
  EXPECT_THAT(load_error(/*strict=*/false),
              AllOf(HasSubstr("Not one of the names fits"), Not(HasSubstr("load_strict"))));
}

TEST_F(Weights, PaddedVocabularyIsAnErrorEvenWhenLoose) {
  auto tensors = good();
  tensors[0].value = at::zeros({4, 2});
  write(tensors);
  for (const bool strict : {true, false})
    EXPECT_THAT(load_error(strict),
                AllOf(HasSubstr("head.weight: [4, 2]"), HasSubstr("the model needs [3, 2]")));
}

TEST_F(Weights, TransposedShapeIsNotGuessed) {
  auto tensors = good();
  tensors[0].value = at::zeros({2, 3});
  write(tensors);
  EXPECT_THAT(load_error(), HasSubstr("head.weight: [2, 3]"));
}

TEST_F(Weights, LoraAndModulePrefixesAreExplained) {
  auto tensors = good();
  tensors[0].name = "head.lora_A.weight";
  write(tensors);
  EXPECT_THAT(load_error(), HasSubstr("LoRA"));
  tensors[0].name = "module.head.weight";
  write(tensors);
  EXPECT_THAT(load_error(), HasSubstr("\"module.\" prefix"));
}

TEST(ScalarWeights, AreExportedAndLoaded) {
  const TemporaryFolder folder;
  const auto sources = [](nn::Layout) {
    return std::vector<nn::WeightSource>{{"scale", {{"logit_scale", {}}}}};
  };
  at::Tensor scale = at::scalar_tensor(2.5f);
  HfExportOptions options;
  options.config_json = "{}";
  options.replace = true;
  export_hf_weights(folder.path(), sources({}), whole_tensors({{"scale", &scale}}), options);
  scale.zero_();
  HfLoadOptions load;
  load.verbose = false;
  load_hf_weights(HfFolder::open(folder.path()), sources, whole_tensors({{"scale", &scale}}), load);
  EXPECT_EQ(scale.item<float>(), 2.5f);
  // A model whose list of sources does not fit its parameters is told so.
  at::Tensor three = at::zeros({3});
  EXPECT_THROW(load_hf_weights(HfFolder::open(folder.path()), sources,
                               whole_tensors({{"scale", &three}}), load),
               InternalError);
}

TEST_F(Weights, LongListsAreCut) {
  auto tensors = good();
  for (int i = 0; i < 50; ++i)
    tensors.push_back({"extra." + std::to_string(i), DType::kF32, at::zeros({1})});
  write(tensors);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("50 unexpected"), HasSubstr("... and 30 more")));
}

}  // namespace
}  // namespace shardloom::checkpoint
