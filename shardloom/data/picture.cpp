#include "shardloom/data/picture.h"

#include <algorithm>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"

namespace shardloom::data {
namespace fs = std::filesystem;

fs::path resolve_picture(const fs::path& root, const std::string& name, const std::string& place) {
  if (name.find('\0') != std::string::npos)
    throw DataError("{}: the picture's path holds a NUL", place);
  if (name.find("://") != std::string::npos) {
    throw DataError("{}: picture {}: URLs are not read; download it below dataset_dir", place,
                    name);
  }
  // "." as root has no components to compare with.
  const fs::path base = fs::absolute(root).lexically_normal();
  const fs::path inside = (base / name).lexically_normal().lexically_relative(base);
  if (inside.empty() || *inside.begin() == "..") {
    throw DataError("{}: picture {} leaves the image root {} (basic_parameters.dataset_dir)", place,
                    name, root.string());
  }
  return root / inside;
}

Picture load_picture(const fs::path& path,
                     const std::string& place,
                     const DecodeOptions& decode,
                     const TileOptions& tiles) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status))
    throw DataError("{}: {} is a directory, not a picture", place, path.string());
  if (status.type() == fs::file_type::not_found) {
    throw DataError(
        "{}: {} does not exist (pictures are looked for below basic_parameters.dataset_dir)", place,
        path.string());
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw DataError("{}: {} is not an ordinary file", place, path.string());
  }
  std::string bytes;
  try {
    bytes = read_file(path);
  } catch (const std::system_error& failure) {
    throw DataError("{}: {}", place, failure.what());
  }
  const RgbImage image = decode_rgb(bytes, fmt::format("{}: {}", place, path.string()), decode);
  return {path, image.width, image.height, make_tiles(image, tiles)};
}

}  // namespace shardloom::data
