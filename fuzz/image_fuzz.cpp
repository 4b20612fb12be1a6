// Arbitrary bytes as a picture file: a picture of the size that its header claims, or a DataError.
#include <cstddef>
#include <cstdint>

#include "shardloom/base/error.h"
#include "shardloom/data/image/image.h"

namespace {

constexpr int64_t kMaxPixels = 1 << 18;  // larger pictures are only slower

void decode_and_resize(std::string_view bytes) {
  using namespace shardloom::data;
  const DecodeOptions options{.apply_exif_orientation = bytes.size() % 2 == 0,
                              .scale_16bit = bytes.size() % 3 == 0};
  const ImageSize size = read_image_size(bytes, "input", options);
  if (int64_t{size.width} * size.height > kMaxPixels) return;
  const RgbImage image = decode_rgb(bytes, "input", options);
  if (image.width != size.width || image.height != size.height) __builtin_trap();
  const RgbImage small = resize_bicubic(image, 9, 5);
  if (small.pixels.size() != size_t{3} * 9 * 5) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    decode_and_resize({reinterpret_cast<const char*>(data), size});
  } catch (const shardloom::DataError&) {
  }
  return 0;
}
