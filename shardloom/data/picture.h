// A picture of a sample, from the path in the record to its tiles.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shardloom/data/image/image.h"

namespace shardloom::data {

struct Picture {
  std::filesystem::path path;
  int width = 0;  // of the file
  int height = 0;
  std::vector<RgbImage> tiles;
};

// Path of the picture `name` below the folder `root`. Throws DataError that starts with `place`
// when the name leaves the root (by "..", or as an absolute path elsewhere), is a URL or holds a
// NUL. Symbolic links below the root may lead anywhere.
std::filesystem::path resolve_picture(const std::filesystem::path& root,
                                      const std::string& name,
                                      const std::string& place);

// Reads, decodes and cuts it. Throws DataError "place: path: cause" when it is missing, no ordinary
// file or damaged.
Picture load_picture(const std::filesystem::path& path,
                     const std::string& place,
                     const DecodeOptions& decode,
                     const TileOptions& tiles);

}  // namespace shardloom::data
