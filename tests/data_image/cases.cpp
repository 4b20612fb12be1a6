#include "tests/data_image/cases.h"

#include <nettle/sha2.h>

#include <filesystem>

namespace shardloom::data {
namespace {

const std::filesystem::path kRoot = std::filesystem::path(SHARDLOOM_TEST_DATA) / "images";

}  // namespace

std::vector<Case> cases_of(const std::string& folder) {
  std::vector<Case> cases;
  const Json expected = read_json_file(kRoot / folder / "expected.json", ExitCode::kData);
  for (const auto& [file, values] : expected.items()) {
    cases.push_back({(kRoot / folder / file).string(), folder + "/" + file, values});
  }
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot)) {
    if (!entry.is_directory()) continue;
    for (Case& one : cases_of(entry.path().filename().string())) cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<Json> table_rows(const std::string& file) {
  const Json table = read_json_file(kRoot / file, ExitCode::kData);
  std::vector<Json> rows;
  for (const Json& values : table.at("rows")) {
    Json row;
    for (size_t i = 0; i < values.size(); ++i) row[table.at("columns")[i]] = values[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string sha256(std::span<const uint8_t> bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size(), bytes.data());
  uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&context, sizeof(digest), digest);
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string sha256(const RgbImage& image) { return sha256(std::span<const uint8_t>(image.pixels)); }

RgbImage make_content(int width, int height, int seed) {
  RgbImage image{width, height, {}};
  image.pixels.reserve(size_t{3} * width * height);
  for (uint32_t y = 0; y < static_cast<uint32_t>(height); ++y) {
    for (uint32_t x = 0; x < static_cast<uint32_t>(width); ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        uint32_t value = 0;
        if (seed % 3 == 0) {
          value = x * 374761393u + y * 668265263u + c * 2246822519u +
                  static_cast<uint32_t>(seed) * 3266489917u;
          value = (value ^ (value >> 13)) * 1274126177u;
          value ^= value >> 16;
        } else if (seed % 3 == 1) {
          value = x * 3 + y * 5 + c * 40 + x * y / 16 + seed;
        } else {
          value = ((x / 3 + y / 2 + c) & 1) * 255;
        }
        image.pixels.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return image;
}

}  // namespace shardloom::data
