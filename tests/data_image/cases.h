// The picture cases of tests/data/images: files with the values that Pillow gives for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardloom/base/json.h"
#include "shardloom/data/image/image.h"

namespace shardloom::data {

struct Case {
  std::string path;
  std::string name;  // "<folder>/<file>"
  Json expected;

  bool refused() const { return expected.contains("error"); }
};

// All files of all folders, or of one.
std::vector<Case> all_cases();
std::vector<Case> cases_of(const std::string& folder);

// Rows of resize.json, grids.json or tiles.json as objects.
std::vector<Json> table_rows(const std::string& file);

std::string sha256(std::span<const uint8_t> bytes);
std::string sha256(const RgbImage& image);

// The picture that tools/make_image_cases.py calls content(width, height, seed).
RgbImage make_content(int width, int height, int seed);

}  // namespace shardloom::data
