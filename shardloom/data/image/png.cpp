// PNG through libpng. Colours as Pillow's convert("RGB"): alpha is dropped, nothing is composited,
// gamma is left alone.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/data/image/codec.h"

namespace shardloom::data::codec {
namespace {

// Text and profiles do not change pixels; skipping them keeps their faults and sizes out of the
// way.
constexpr png_byte kSkippedChunks[] = "iCCP\0iTXt\0tEXt\0zTXt\0sPLT\0hIST\0eXIf";

// No C++ object may live in a frame that longjmp leaves, so each step is a method with plain locals
// only.
class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : rest_(bytes) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Reads everything before the pixels and asks for 8-bit RGB rows, or 16-bit gray ones when
  // is_gray16().
  bool read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ == nullptr) return fail("libpng cannot start");
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return fail("libpng cannot start");
    png_set_read_fn(png_, this, read_bytes);
    png_set_user_limits(png_, kMaxPixels, kMaxPixels);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kSkippedChunks,
                                sizeof(kSkippedChunks) / 5);
    png_read_info(png_, info_);
    const int color = png_get_color_type(png_, info_);
    gray16_ = color == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) == 16;
    if (!gray16_) {
      png_set_strip_16(png_);
      if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      if ((color & PNG_COLOR_MASK_COLOR) == 0) {
        png_set_expand_gray_1_2_4_to_8(png_);
        png_set_gray_to_rgb(png_);
      }
      png_set_strip_alpha(png_);
    }
    num_passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_pixels(uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const size_t stride = png_get_rowbytes(png_, info_);
    const size_t height = png_get_image_height(png_, info_);
    for (int pass = 0; pass < num_passes_; ++pass) {
      for (size_t y = 0; y < height; ++y) png_read_row(png_, pixels + y * stride, nullptr);
    }
    return true;
  }

  bool is_gray16() const { return gray16_; }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  const char* message() const { return message_; }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    static_cast<PngReader*>(png_get_error_ptr(png))->fail(message);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void read_bytes(png_structp png, png_bytep out, size_t length) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (length > reader->rest_.size()) {
      png_error(png, "the data ends before the picture does (truncated file)");
    }
    std::memcpy(out, reader->rest_.data(), length);
    reader->rest_.remove_prefix(length);
  }
  bool fail(const char* message) {
    std::snprintf(message_, sizeof(message_), "%s", message);
    return false;
  }

  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  bool gray16_ = false;
  int num_passes_ = 1;
  char message_[200] = "";
};

void gray16_to_rgb(const std::vector<uint8_t>& gray, bool scale, RgbImage& image) {
  uint8_t* to = image.pixels.data();
  for (size_t i = 0; i < gray.size(); i += 2, to += 3) {
    const uint8_t clipped = gray[i] == 0 ? gray[i + 1] : 255;
    std::fill_n(to, 3, scale ? gray[i] : clipped);
  }
}

}  // namespace

ImageSize png_size(std::string_view bytes, const std::string& place) {
  if (bytes.size() < 24) throw_damaged(place, "PNG", "the header is cut off (truncated file)");
  if (bytes.substr(12, 4) != "IHDR") throw_damaged(place, "PNG", "it does not start with IHDR");
  return checked_size(big32(bytes, 16), big32(bytes, 20), place);
}

RgbImage decode_png(std::string_view bytes, const std::string& place, bool scale_16bit) {
  const ImageSize size = png_size(bytes, place);
  PngReader reader(bytes);
  if (!reader.read_header()) throw_damaged(place, "PNG", reader.message());
  RgbImage image = new_image(size);
  std::vector<uint8_t> gray16;
  if (reader.is_gray16()) gray16.resize(image.pixels.size() / 3 * 2);
  const std::vector<uint8_t>& target = reader.is_gray16() ? gray16 : image.pixels;
  SHARDLOOM_CHECK(reader.row_bytes() * size.height == target.size(), "{}: rows of {} bytes", place,
                  reader.row_bytes());
  if (!reader.read_pixels(reader.is_gray16() ? gray16.data() : image.pixels.data())) {
    throw_damaged(place, "PNG", reader.message());
  }
  if (reader.is_gray16()) gray16_to_rgb(gray16, scale_16bit, image);
  return image;
}

}  // namespace shardloom::data::codec
