// Helper of tools/check_dcp_with_torch.py, which compares this program and PyTorch.
//   dcp_sample write FOLDER RANKS [BYTES]   a checkpoint of every dtype, cut in several ways; with
//                                           BYTES also a tensor "big" of that many bytes
//   dcp_sample dump FOLDER                  a JSON line for each tensor and value
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/staged_folder.h"

namespace shardloom::checkpoint::dcp {
namespace {

// Byte i of every tensor, known to the script too. 0 and 1 alone are good bools.
char sample_byte(DType dtype, uint64_t i) {
  return static_cast<char>(dtype == DType::kBool ? i % 3 % 2 : i * 7 % 251);
}

void add(RankWriter& writer, const TensorSpec& spec, const Box& box) {
  const uint64_t element = dtype_bits(spec.dtype) / 8;
  const std::vector<int64_t> strides = dense_strides(spec.shape);
  const auto provide = [&](const RankWriter::Sink& sink) {
    // Row by row; a row of the whole tensor begins at a known byte.
    const size_t last = box.sizes.empty() ? 0 : box.sizes.size() - 1;
    const int64_t rows = last == 0 ? 1 : box.sizes[0];
    const int64_t columns = box.sizes.empty() ? 1 : box.sizes[last];
    for (int64_t row = 0; row < rows; ++row) {
      int64_t first = box.sizes.empty() ? 0 : box.offsets[last];
      if (last > 0) first += (box.offsets[0] + row) * strides[0];
      const uint64_t begin = static_cast<uint64_t>(first) * element;
      const uint64_t end = begin + static_cast<uint64_t>(columns) * element;
      constexpr uint64_t kPiece = 1 << 20;
      std::string piece;
      for (uint64_t at = begin; at < end; at += piece.size()) {
        piece.resize(std::min(kPiece, end - at));
        for (uint64_t i = 0; i < piece.size(); ++i) piece[i] = sample_byte(spec.dtype, at + i);
        sink(piece);
      }
    }
  };
  const size_t dot = spec.name.find('.');
  writer.add_tensor(spec, box, {spec.name.substr(0, dot), spec.name.substr(dot + 1)}, provide);
}

// Part `rank` of `ranks` along one dimension, as torch.chunk cuts it.
Box part(const std::vector<int64_t>& shape, size_t dim, int rank, int ranks) {
  Box box{std::vector<int64_t>(shape.size()), shape};
  const int64_t step = (shape[dim] + ranks - 1) / ranks;
  box.offsets[dim] = std::min(step * rank, shape[dim]);
  box.sizes[dim] = std::min(step, shape[dim] - box.offsets[dim]);
  return box;
}

void add_tensors(RankWriter& writer, int rank, int ranks) {
  for (const std::string& name : dtype_names()) {
    const DType dtype = parse_dtype(name).value();
    if (dtype_bits(dtype) < 8) continue;
    const std::vector<int64_t> shape = {5, 3};
    add(writer, {"rows." + name, dtype, shape}, part(shape, 0, rank, ranks));
    add(writer, {"columns." + name, dtype, shape}, part(shape, 1, rank, ranks));
    if (rank == ranks - 1) add(writer, {"scalar." + name, dtype, {}}, {});
  }
  add(writer, {"rows.one", DType::kF32, {1, 4}}, part({1, 4}, 0, rank, ranks));
  add(writer, {"rows.none", DType::kF32, {0, 4}}, part({0, 4}, 0, rank, ranks));
}

void add_values(RankWriter& writer) {
  using Value = PythonValue;
  writer.add_value("values.int", {"values", "int"}, int64_t{123456789012});
  writer.add_value("values.float", {"values", "float"}, 1e-08);
  writer.add_value("values.text", {"values", "text"}, "h\xc3\xa9llo");
  writer.add_value("values.none", {"values", "none"}, {});
  writer.add_value("values.true", {"values", "true"}, true);
  writer.add_value("values.bytes", {"values", "bytes"}, Value::Bytes{"a\xff"});
  writer.add_value("values.tuple", {"values", "tuple"}, Value::Tuple{{0.9, 0.95}});
  writer.add_value("values.names", {"values", "names"}, Value::List{{"a", "b", "a"}});
  writer.add_value("groups.0.lr", {"groups", int64_t{0}, "lr"}, 0.001);
  writer.add_value("groups.1.lr", {"groups", int64_t{1}, "lr"},
                   Value::Tuple{{Value::Dict{{{"x", -1}}}}});
}

void write_sample(const std::filesystem::path& folder, int ranks, int64_t big_bytes) {
  begin_staging(folder);
  Metadata merged;
  for (int rank = 0; rank < ranks; ++rank) {
    RankWriter writer(staging_folder(folder), rank);
    if (rank == 0) {
      add_values(writer);
      if (big_bytes > 0) add(writer, {"rows.big", DType::kU8, {big_bytes}}, {{0}, {big_bytes}});
    }
    add_tensors(writer, rank, ranks);
    merge_metadata(merged, writer.finish(), folder.string());
  }
  write_metadata(staging_folder(folder), merged);
  publish_staging(folder);
}

void dump(const std::filesystem::path& folder) {
  const Reader reader(folder, {.verify_crc = true});
  for (const auto& [name, tensor] : reader.metadata().tensors) {
    std::string hex;
    for (const char byte : reader.read_tensor(name)) {
      hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    }
    std::cout << Json({{"name", name},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"chunks", tensor.chunks.size()},
                       {"hex", hex}})
              << "\n";
  }
  for (const auto& entry : reader.metadata().values) {
    std::cout << Json({{"name", entry.first}, {"value", python_text(reader.value(entry.first))}})
              << "\n";
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() >= 3 && arguments[0] == "write") {
    write_sample(arguments[1], std::stoi(arguments[2]),
                 arguments.size() > 3 ? std::stoll(arguments[3]) : 0);
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "dump") {
    dump(arguments[1]);
    return 0;
  }
  std::cerr << "dcp_sample write FOLDER RANKS [BYTES] | dump FOLDER\n";
  return 2;
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp

int main(int argc, char** argv) {
  try {
    return shardloom::checkpoint::dcp::run({argv + 1, argv + argc});
  } catch (const shardloom::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
