// Reading what PyTorch wrote: every value of every sample, by any number of readers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "shardloom/checkpoint/dcp/reader.h"
#include "tests/dcp/samples.h"

namespace shardloom::checkpoint::dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DcpSample : public ::testing::TestWithParam<const char*> {
 protected:
  const Reader reader_{kData / "samples" / GetParam(), {.verify_crc = true}};
  const std::map<std::string, TrueTensor> truth_ = true_tensors(GetParam());
};

INSTANTIATE_TEST_SUITE_P(All,
                         DcpSample,
                         ::testing::Values("r1_dsd", "r2_dsd", "r2_plain", "hand_minimal"));

TEST_P(DcpSample, HoldsExactlyTheTrueTensors) {
  ASSERT_FALSE(truth_.empty());
  EXPECT_EQ(reader_.metadata().tensors.size(), truth_.size());
  for (const auto& [name, tensor] : truth_) {
    EXPECT_EQ(reader_.tensor(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(reader_.tensor(name).shape, tensor.shape) << name;
    EXPECT_EQ(reader_.read_tensor(name), tensor.bytes) << name;
  }
}

TEST_P(DcpSample, AnyBoxIntoAnyMemory) {
  std::mt19937 random(7);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % (limit + 1)); };
  for (const auto& [name, tensor] : truth_) {
    for (int round = 0; round < 20; ++round) {
      Box box;
      for (const int64_t size : tensor.shape) {
        box.offsets.push_back(below(size));
        box.sizes.push_back(below(size - box.offsets.back()));
      }
      // Column-major memory with a gap after each column.
      BoxTarget target{nullptr, 0, tensor.dtype, std::vector<int64_t>(box.sizes.size())};
      int64_t stride = 1;
      for (size_t dim = 0; dim < box.sizes.size(); ++dim) {
        target.strides[dim] = stride;
        stride = stride * std::max<int64_t>(box.sizes[dim], 1) + 1;
      }
      const size_t element = dtype_bits(tensor.dtype) / 8;
      std::string memory(static_cast<size_t>(stride) * element, '\xAA');
      target.data = memory.data();
      target.bytes = memory.size();
      reader_.read_box(name, box, target);

      std::string dense(volume(box.sizes) * element, '\0');
      copy_strided(box.sizes, element, memory.data(), target.strides, dense.data(),
                   dense_strides(box.sizes));
      EXPECT_EQ(dense, cut_out(tensor, box)) << name << " " << box_text(box);
    }
  }
}

TEST_P(DcpSample, RowsOfEveryNumberOfReaders) {
  for (const int64_t world : {1, 2, 3, 4, 8}) {
    for (const auto& [name, tensor] : truth_) {
      if (tensor.shape.empty()) continue;
      const int64_t rows = (tensor.shape[0] + world - 1) / world;
      std::string all;
      for (int64_t rank = 0; rank < world; ++rank) {
        const int64_t first = std::min(rank * rows, tensor.shape[0]);
        const int64_t count = std::min(rows, tensor.shape[0] - first);
        std::string part(tensor.bytes.size(), '\0');
        reader_.read_rows(name, first, count, {part.data(), part.size(), tensor.dtype, {}});
        all += part.substr(0, tensor.bytes.size() * static_cast<size_t>(count) /
                                  static_cast<size_t>(tensor.shape[0]));
      }
      EXPECT_EQ(all, tensor.bytes) << name << " on " << world;
    }
  }
}

TEST_P(DcpSample, EveryChecksumIsRight) {
  uint64_t chunks = reader_.metadata().values.size();
  for (const auto& entry : reader_.metadata().tensors) chunks += entry.second.chunks.size();
  EXPECT_EQ(reader_.verify([](const std::string& name, const std::string& error) {
    ADD_FAILURE() << name << ": " << error;
  }),
            chunks);
}

TEST_P(DcpSample, RewrittenMetadataSaysTheSame) {
  const std::string pickle = metadata_pickle(reader_.metadata());
  EXPECT_EQ(parse_metadata(pickle, "rewritten"), reader_.metadata());
}

TEST(DcpSamples, ValuesAndPathsOfTheSavedState) {
  for (const char* sample : {"r1_dsd", "r2_dsd", "r2_plain"}) {
    const Reader reader(kData / "samples" / sample);
    const Json truth =
        read_json_file(kData / "samples" / (std::string(sample) + ".truth.json"), ExitCode::kData);
    size_t values = 0;
    for (const auto& [name, item] : truth.at("items").items()) {
      StatePath path;
      for (const Json& part : item.at("path")) {
        if (part.is_string()) {
          path.emplace_back(part.get<std::string>());
        } else {
          path.emplace_back(part.get<int64_t>());
        }
      }
      EXPECT_EQ(reader.metadata().planner_data.at(name), path) << name;
      if (item.at("kind") != "object") continue;
      ++values;
      EXPECT_EQ(python_text(reader.value(name)), item.at("repr")) << name;
    }
    EXPECT_EQ(reader.metadata().values.size(), values) << sample;
    EXPECT_GE(values, 21U);
  }
}

TEST(DcpSamples, WideIntAndTuple) {
  const Reader reader(kData / "samples" / "hand_minimal");
  EXPECT_EQ(reader.value("extra.step"), PythonValue(int64_t{123456789012}));
  EXPECT_EQ(reader.value("extra.betas"), PythonValue(PythonValue::Tuple{{0.9, 0.95}}));
}

TEST(DcpReader, RefusesWhatIsNotThere) {
  const Reader reader(kData / "samples" / "r2_dsd");
  float value = 0;
  const BoxTarget target{reinterpret_cast<char*>(&value), sizeof value, DType::kF32, {}};
  EXPECT_THAT(error_of([&] { reader.tensor("model.lin.weigth"); }),
              AllOf(HasSubstr("r2_dsd"), HasSubstr("no tensor \"model.lin.weigth\""),
                    HasSubstr("did you mean model.lin.weight?")));
  EXPECT_THAT(error_of([&] { reader.value("extra.stop"); }),
              AllOf(HasSubstr("no value \"extra.stop\""), HasSubstr("extra.step")));
  EXPECT_THAT(error_of([&] {
                reader.read_box("model.lin.weight", {{7, 4}, {1, 1}}, target);
              }),
              AllOf(HasSubstr("model.lin.weight"), HasSubstr("[7, 4] + [1, 1]"),
                    HasSubstr("outside its shape [7, 5]")));
  EXPECT_THAT(error_of([&] {
                reader.read_box("model.lin.weight", {{0}, {1}}, target);
              }),
              HasSubstr("outside its shape [7, 5]"));
  EXPECT_THAT(error_of([&] { reader.read_rows("scalar", 0, 1, target); }),
              HasSubstr("has no rows"));
  EXPECT_THAT(error_of([&] {
                reader.read_box("model.emb.weight", {{0, 0}, {1, 1}}, target);
              }),
              AllOf(HasSubstr("is BF16"), HasSubstr("F32 is wanted")));
}

TEST(DcpReader, SeveralThreadsAtOnce) {
  const Reader reader(kData / "samples" / "r2_dsd", {.verify_crc = true});
  const auto truth = true_tensors("r2_dsd");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const auto& entry : truth)
        wrong += reader.read_tensor(entry.first) != entry.second.bytes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(DcpReader, NeverWritesPastTheTarget) {
  const Reader reader(kData / "samples" / "r2_dsd");
  std::string memory(15, '\0');
  EXPECT_THROW(reader.read_box("model.lin.weight", {{0, 0}, {1, 4}},
                               {memory.data(), memory.size(), DType::kF32, {}}),
               InternalError);
  EXPECT_THROW(reader.read_box("model.lin.weight", {{0, 0}, {2, 1}},
                               {memory.data(), memory.size(), DType::kF32, {4, 1}}),
               InternalError);
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
