// Conversions between HF folders and distributed checkpoints: bit-exact both ways, the experts in
// the layout that another program gave (tests/data/checkpoint/experts), and what is refused before
// anything is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/checkpoint/convert/cast.h"
#include "shardloom/checkpoint/convert/dcp_to_hf.h"
#include "shardloom/checkpoint/convert/hf_to_dcp.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "shardloom/checkpoint/save_root.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

Tensors read_file_tensors(const fs::path& path) {
  const SafetensorsFile file(path);
  Tensors tensors;
  for (const TensorInfo& info : file.tensors()) {
    tensors[info.name] = {info.dtype, info.shape, std::string(file.data(info))};
  }
  return tensors;
}

Tensors read_hf(const fs::path& path) {
  const HfFolder folder = HfFolder::open(path);
  Tensors tensors;
  for (const auto& [name, location] : folder.tensors()) {
    tensors[name] = {location.info->dtype, location.info->shape, std::string(location.data())};
  }
  return tensors;
}

void write_hf(const fs::path& folder, const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.dtype, tensor.shape});
  fs::create_directories(folder);
  SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const TensorSpec& spec : writer.tensors()) {
    writer.write(spec.name, tensors.at(spec.name).bytes);
  }
  writer.finish();
  std::ofstream(folder / "config.json") << R"({"layers": 2, "torch_dtype": "float32"})";
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

// The fused experts of layer 0 of `E` experts, as the model stores them.
std::vector<nn::WeightSource> expert_sources(int64_t E, int64_t H, int64_t I) {
  const std::string experts = "language_model.model.layers.0.mlp.experts.";
  nn::WeightSource gate_up{experts + "gate_up_proj", {}}, down{experts + "down_proj", {}};
  for (int64_t e = 0; e < E; ++e) {
    const std::string one = experts + std::to_string(e);
    gate_up.pieces.push_back({one + ".gate_proj.weight", {I, H}, e * H, 0, true});
    gate_up.pieces.push_back({one + ".up_proj.weight", {I, H}, e * H, I, true});
    down.pieces.push_back({one + ".down_proj.weight", {H, I}, e * I, 0, true});
  }
  return {gate_up, down};
}

struct ExpertCase {
  const char* name;
  int64_t E, H, I;
};

class Experts : public ::testing::TestWithParam<ExpertCase> {};

TEST_P(Experts, FusedAsTheReferenceDoesAndBackToTheSameBits) {
  const auto& [name, E, H, I] = GetParam();
  const fs::path data = fs::path(SHARDLOOM_TEST_DATA) / "checkpoint" / "experts";
  const Tensors original = read_file_tensors(data / (std::string(name) + "_hf.safetensors"));
  const TemporaryFolder folder;
  write_hf(folder.path() / "hf", original);
  const DescribeModel describe = [&](auto) {
    ConvertModel model;
    model.sources = [&](nn::Layout) { return expert_sources(E, H, I); };
    model.may_ignore = [](const auto&) { return false; };
    model.config = [](const auto&, nn::Layout) {
      return R"({"layers": 2, "torch_dtype": "float32"})";
    };
    return model;
  };
  hf_to_dcp({folder.path() / "hf", folder.path() / "dcp", "", "", 2}, describe);
  const dcp::Reader reader(folder.path() / "dcp" / "release", {.verify_crc = true});
  const Tensors fused = read_file_tensors(data / (std::string(name) + "_fused.safetensors"));
  ASSERT_EQ(reader.metadata().tensors.size(), fused.size());
  for (const auto& [key, tensor] : fused) {
    const auto& entry = reader.tensor("model." + key);
    const std::string bytes = reader.read_tensor("model." + key);
    EXPECT_EQ((Tensor{entry.dtype, entry.shape, bytes}), tensor) << key;
  }
  dcp_to_hf(
      {folder.path() / "hf", folder.path() / "dcp" / "release", folder.path() / "back", {}, ""},
      describe);
  EXPECT_EQ(read_hf(folder.path() / "back"), original);
}

INSTANTIATE_TEST_SUITE_P(Sizes,
                         Experts,
                         ::testing::Values(ExpertCase{"plain", 4, 6, 5},
                                           ExpertCase{"H_eq_2I", 4, 8, 4},
                                           ExpertCase{"H_eq_I", 4, 4, 4},
                                           ExpertCase{"one_expert", 1, 6, 5}),
                         [](const auto& info) { return info.param.name; });

// Each layer: two experts [3, 2]; besides a matrix of two row blocks, a vector and a picture
// kernel.
class Convert : public ::testing::Test {
 protected:
  static std::vector<nn::WeightSource> sources(int64_t layers) {
    std::vector<nn::WeightSource> list = {
        {"qkv", {{"q", {2, 3}, 0, 0}, {"k", {2, 3}, 2, 0}, {"v", {1, 3}, 4, 0}}},
        {"bias", {{"bias", {5}}}},
        {"kernel", {{"file.kernel", {2, 1, 3, 2}}}}};
    for (int64_t i = 0; i < layers; ++i) {
      const std::string layer = "layers." + std::to_string(i);
      list.push_back(
          {layer + ".w",
           {{layer + ".0.w", {3, 2}, 0, 0, true}, {layer + ".1.w", {3, 2}, 2, 0, true}}});
    }
    return list;
  }

  static Tensors weights(DType dtype, const std::string& prefix = "", int64_t layers = 2) {
    Tensors tensors;
    for (const auto& source : sources(layers)) {
      for (const auto& piece : source.pieces) {
        Tensor tensor{dtype, piece.shape, {}};
        tensor.bytes.resize(*tensor_bytes(dtype, piece.shape));
        for (size_t i = 0; i < tensor.bytes.size(); ++i) {
          tensor.bytes[i] = static_cast<char>(piece.key.back() * 17 + piece.key.size() + i * 5);
        }
        tensors[prefix + piece.key] = tensor;
      }
    }
    return tensors;
  }

  static DescribeModel model() {
    return [](std::optional<int64_t> cut) {
      const int64_t layers = cut.value_or(2);
      ConvertModel described;
      described.sources = [layers](nn::Layout layout) {
        auto list = sources(layers);
        if (nn::is_hf(layout)) list[2].pieces[0].key = "hf.kernel";
        return list;
      };
      described.may_ignore = [layers](const std::string& key) {
        return key.starts_with("layers.") && std::stoll(key.substr(7)) >= layers;
      };
      described.config = [layers](const std::string& dtype, nn::Layout layout) {
        Json json = {{"layers", layers}, {"torch_dtype", dtype}};
        if (nn::is_hf(layout)) json["model_type"] = "hf";
        return json.dump();
      };
      return described;
    };
  }

  fs::path hf() const { return folder_.path() / "hf"; }
  fs::path dcp() const { return folder_.path() / "dcp"; }
  fs::path back() const { return folder_.path() / "back"; }

  void to_dcp(const std::string& dcp_prefix = "", const std::string& hf_prefix = "") const {
    hf_to_dcp({hf(), dcp(), dcp_prefix, hf_prefix, 3}, model());
  }
  DcpToHfOptions to_hf() const {
    return {hf(), dcp() / "release", back(), {}, "", {}, kDefaultShardBytes, 2};
  }
  std::string to_dcp_error() const {
    const std::string text = error_of([&] { to_dcp(); });
    EXPECT_FALSE(fs::exists(dcp() / "release"));
    EXPECT_FALSE(fs::exists(dcp() / "release.tmp"));
    return text;
  }
  std::string to_hf_error(const DcpToHfOptions& options) const {
    const std::string text = error_of([&] { dcp_to_hf(options, model()); });
    EXPECT_FALSE(fs::exists(back() / "config.json"));
    return text;
  }

  TemporaryFolder folder_;
};

TEST_F(Convert, RoundTripKeepsEveryTypeNameAndFile) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI8}) {
    const TemporaryFolder again;
    const Tensors original = weights(dtype);
    write_hf(again.path() / "hf", original);
    folder_.write("hf/unused", "");
    std::ofstream(again.path() / "hf" / "tokenizer.json") << "{}";
    hf_to_dcp({again.path() / "hf", again.path() / "dcp", "", "", 2}, model());
    dcp_to_hf({again.path() / "hf", again.path() / "dcp", again.path() / "back", {}, ""}, model());
    EXPECT_EQ(read_hf(again.path() / "back"), original) << dtype_name(dtype);
    EXPECT_EQ(read_file(again.path() / "back" / "tokenizer.json"), "{}");
  }
}

TEST_F(Convert, LayoutOfTheCheckpoint) {
  write_hf(hf(), weights(DType::kF32));
  to_dcp();
  EXPECT_EQ(read_file(dcp() / "latest_checkpointed_iteration.txt"), "release");
  EXPECT_TRUE(fs::exists(dcp() / "release" / "__0_0.distcp"));
  const dcp::Reader reader(dcp() / "release");
  EXPECT_EQ(reader.value("checkpoint_version"), dcp::PythonValue(3.0));
  EXPECT_EQ(reader.tensor("model.qkv").shape, (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(reader.metadata().planner_data.at("model.layers.1.w"),
            (dcp::StatePath{"model", "layers.1.w"}));
}

TEST_F(Convert, UnchangedConfigIsCopiedByteForByte) {
  write_hf(hf(), weights(DType::kF32));
  to_dcp();
  dcp_to_hf(to_hf(), model());
  EXPECT_EQ(read_file(back() / "config.json"), read_file(hf() / "config.json"));
}

TEST_F(Convert, EitherPrefixIsFoundOut) {
  write_hf(hf(), weights(DType::kF32));
  to_dcp("model.");
  EXPECT_EQ(dcp::Reader(dcp() / "release").tensor("model.model.bias").shape.size(), 1U);
  dcp_to_hf(to_hf(), model());
  EXPECT_EQ(read_hf(back()), weights(DType::kF32));
}

TEST_F(Convert, AnyOtherPrefixMustBeNamed) {
  write_hf(hf(), weights(DType::kF32));
  to_dcp("wrap.");
  EXPECT_THAT(to_hf_error(to_hf()), AllOf(HasSubstr("no weight is named model.qkv"),
                                          HasSubstr("the first name is model.wrap.bias")));
  DcpToHfOptions options = to_hf();
  options.dcp_prefix = "wrong.";
  EXPECT_THAT(to_hf_error(options), HasSubstr("model.wrong.qkv"));
  options.dcp_prefix = "wrap.";
  dcp_to_hf(options, model());
  EXPECT_EQ(read_hf(back()), weights(DType::kF32));
}

TEST_F(Convert, PrefixOfTheHfNames) {
  write_hf(hf(), weights(DType::kF32, "base."));
  EXPECT_THAT(to_dcp_error(), HasSubstr("missing (the model needs them)"));
  EXPECT_THAT(error_of([&] { to_dcp("", "bose."); }),
              AllOf(HasSubstr("--hf_prefix \"bose.\""), HasSubstr("the first is base.bias")));
  to_dcp("", "base.");
  EXPECT_TRUE(dcp::Reader(dcp() / "release").metadata().tensors.contains("model.qkv"));
  DcpToHfOptions options = to_hf();
  options.hf_prefix = "base.";
  dcp_to_hf(options, model());
  EXPECT_EQ(read_hf(back()), weights(DType::kF32, "base."));
}

TEST_F(Convert, MissingUnexpectedAndMisshapenTensorsAreNamedAtOnce) {
  Tensors tensors = weights(DType::kF32);
  tensors.erase("layers.1.1.w");
  tensors["extra"] = {DType::kF32, {1}, "abcd"};
  tensors["bias"] = {DType::kF32, {1}, "abcd"};
  write_hf(hf(), tensors);
  EXPECT_THAT(to_dcp_error(), AllOf(HasSubstr("layers.1.1.w"), HasSubstr("extra"),
                                    HasSubstr("bias: [1] in model.safetensors")));
}

TEST_F(Convert, PartsOfOneParameterAreOfOneType) {
  Tensors tensors = weights(DType::kF32);
  tensors["layers.1.1.w"] = weights(DType::kBF16)["layers.1.1.w"];
  write_hf(hf(), tensors);
  EXPECT_THAT(to_dcp_error(),
              AllOf(HasSubstr("layers.1.0.w is F32"), HasSubstr("layers.1.1.w is BF16")));
}

TEST_F(Convert, LayersThatTheConfigDoesNotHaveAreLeftOut) {
  write_hf(hf(), weights(DType::kF32, "", 3));
  to_dcp();
  EXPECT_FALSE(dcp::Reader(dcp() / "release").metadata().tensors.contains("model.layers.2.w"));
}

TEST_F(Convert, TargetMustBeEmpty) {
  write_hf(hf(), weights(DType::kF32));
  folder_.write("dcp/iter_0000007/x", "");
  EXPECT_THAT(to_dcp_error(), HasSubstr("dcp exists and is not empty"));
  fs::remove_all(dcp());
  // What an interrupted conversion leaves is no obstacle.
  folder_.write("dcp/release.tmp/x", "");
  to_dcp();
  folder_.write("back/x", "");
  EXPECT_THAT(to_hf_error(to_hf()), HasSubstr("back exists and is not empty"));
}

TEST_F(Convert, FewerLayersInTheCheckpointGiveTheirOwnConfig) {
  write_hf(hf(), weights(DType::kF32, "", 1));
  hf_to_dcp({hf(), dcp(), "", "", 1}, [](auto) { return model()(1); });
  dcp_to_hf(to_hf(), model());
  EXPECT_EQ(read_hf(back()), weights(DType::kF32, "", 1));
  EXPECT_EQ(Json::parse(read_file(back() / "config.json"))["layers"], 1);
}

// A hole in the middle is damage, not a smaller model.
TEST_F(Convert, LayerMissingBelowOthersIsAnError) {
  write_hf(hf(), weights(DType::kF32));
  hf_to_dcp({hf(), dcp(), "", "", 1}, [](auto) {
    ConvertModel model = Convert::model()(2);
    model.sources = [](nn::Layout) {
      auto list = sources(2);
      std::erase_if(list, [](const auto& source) { return source.parameter == "layers.0.w"; });
      return list;
    };
    model.may_ignore = [](const auto&) { return true; };
    return model;
  });
  EXPECT_THAT(to_hf_error(to_hf()), HasSubstr("model.layers.0.w"));
}

TEST_F(Convert, OtherTypeOnRequest) {
  const Tensors original = weights(DType::kF32);
  write_hf(hf(), original);
  to_dcp();
  DcpToHfOptions options = to_hf();
  options.dtype = DType::kBF16;
  dcp_to_hf(options, model());
  EXPECT_EQ(Json::parse(read_file(back() / "config.json"))["torch_dtype"], "bfloat16");
  for (const auto& [name, tensor] : read_hf(back())) {
    const Tensor& from = original.at(name);
    std::string wanted(from.bytes.size() / 2, '\0');
    cast_elements(from.bytes, DType::kF32, wanted.data(), DType::kBF16);
    EXPECT_EQ(tensor, (Tensor{DType::kBF16, from.shape, wanted})) << name;
  }
}

TEST_F(Convert, OtherLayoutOnRequest) {
  const Tensors original = weights(DType::kF32);
  write_hf(hf(), original);
  for (const char* file : {"tokenizer.json", "modeling.py", "chat_template.jinja"})
    folder_.write(std::string("hf/") + file, "{}");
  to_dcp();
  DcpToHfOptions options = to_hf();
  options.layout = "hf";
  dcp_to_hf(options, model());
  Tensors renamed = original;
  auto kernel = renamed.extract("file.kernel");
  kernel.key() = "hf.kernel";
  renamed.insert(std::move(kernel));
  EXPECT_EQ(read_hf(back()), renamed);
  EXPECT_EQ(Json::parse(read_file(back() / "config.json"))["model_type"], "hf");
  EXPECT_TRUE(fs::exists(back() / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(back() / "modeling.py"));
  EXPECT_FALSE(fs::exists(back() / "chat_template.jinja"));
  // Asked for by its name, the layout of the folder itself changes nothing.
  fs::remove_all(back());
  options.layout = "remote_code";
  dcp_to_hf(options, model());
  EXPECT_EQ(read_hf(back()), original);
  EXPECT_EQ(read_file(back() / "config.json"), read_file(hf() / "config.json"));
  EXPECT_TRUE(fs::exists(back() / "chat_template.jinja"));
}

TEST_F(Convert, ManyFilesWhenTheModelIsLarge) {
  write_hf(hf(), weights(DType::kF32));
  to_dcp();
  DcpToHfOptions options = to_hf();
  options.max_shard_bytes = 60;
  dcp_to_hf(options, model());
  EXPECT_TRUE(fs::exists(back() / "model-00004-of-00005.safetensors"));
  EXPECT_EQ(read_hf(back()), weights(DType::kF32));
}

TEST_F(Convert, OptimizerOfATrainingCheckpointIsLeftOut) {
  write_hf(hf(), weights(DType::kF32));
  const fs::path checkpoint = folder_.path() / "run" / "iter_0000003";
  fs::create_directories(checkpoint);
  dcp::RankWriter writer(checkpoint, 0);
  const auto add = [&](const std::string& root, const std::string& name,
                       const std::vector<int64_t>& shape) {
    const std::string bytes(*tensor_bytes(DType::kF32, shape), 'x');
    writer.add_tensor({root + "." + name, DType::kF32, shape},
                      {std::vector<int64_t>(shape.size()), shape}, {root, name},
                      [&](const auto& sink) { sink(bytes); });
  };
  for (const auto& source : sources(2)) {
    add("model", source.parameter, parameter_shape(source));
    add("optimizer", source.parameter, parameter_shape(source));
  }
  dcp::write_metadata(checkpoint, writer.finish());
  write_latest(folder_.path() / "run", 3);
  DcpToHfOptions options = to_hf();
  options.dcp_dir = folder_.path() / "run";
  EXPECT_EQ(dcp_to_hf(options, model()).tensors, weights(DType::kF32).size());
  EXPECT_EQ(read_hf(back()).at("layers.0.1.w").bytes, std::string(24, 'x'));
}

TEST_F(Convert, DamagedCheckpointIsNamedAndLeavesNothing) {
  write_hf(hf(), weights(DType::kF32));
  to_dcp();
  const fs::path file = dcp() / "release" / "__0_0.distcp";
  std::string content = read_file(file);
  const std::string data = weights(DType::kF32).at("bias").bytes;
  const size_t at = content.find(data);
  ASSERT_NE(at, std::string::npos);
  content[at + 7] ^= 1;
  fs::remove(file);
  std::ofstream(file, std::ios::binary) << content;
  EXPECT_THAT(to_hf_error(to_hf()), AllOf(HasSubstr("model.bias"), HasSubstr("damaged")));
  EXPECT_FALSE(fs::exists(folder_.path() / "back.tmp"));
}

TEST(Space, TooSmallADiskIsSaidBefore) {
  const TemporaryFolder folder;
  require_space(folder.path() / "a" / "b", 1);
  EXPECT_THAT(error_of([&] { require_space(folder.path() / "a" / "b", UINT64_MAX / 2); }),
              AllOf(HasSubstr("needs 8388608.0 TiB"), HasSubstr("free")));
}

TEST(Cast, RoundsToNearestEven) {
  const std::vector<float> from = {1.0F, 1.00390625F, 1.01171875F, -0.0F, 3.4e38F};
  std::vector<uint16_t> to(from.size());
  cast_elements({reinterpret_cast<const char*>(from.data()), from.size() * 4}, DType::kF32,
                reinterpret_cast<char*>(to.data()), DType::kBF16);
  // Ties go to the even neighbour, what is beyond the largest number to infinity.
  EXPECT_EQ(to, (std::vector<uint16_t>{0x3F80, 0x3F80, 0x3F82, 0x8000, 0x7F80}));
}

}  // namespace
}  // namespace shardloom::checkpoint
