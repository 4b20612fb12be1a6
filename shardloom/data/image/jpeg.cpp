// JPEG through libjpeg-turbo with its defaults (accurate integer DCT, smooth chroma upsampling), as
// Pillow uses it.
#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which uses FILE

#include <jpeglib.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "shardloom/data/image/codec.h"

namespace shardloom::data::codec {
namespace {

constexpr char kTruncated[] = "the data ends before the picture does (truncated file)";

struct Trap {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer to it is a pointer to the Trap
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* trap = reinterpret_cast<Trap*>(info->err);
  info->err->format_message(info, trap->message);
  std::longjmp(trap->jump, 1);
}

// The whole file is in memory. Asking for more suspends the decoder, which is how a missing
// end-of-image marker shows; libjpeg's own memory source would invent one and return gray rows.
boolean no_more_input(j_decompress_ptr) { return FALSE; }

void skip_input(j_decompress_ptr info, long num_bytes) {
  if (num_bytes <= 0) return;
  const size_t step = std::min(static_cast<size_t>(num_bytes), info->src->bytes_in_buffer);
  info->src->next_input_byte += step;
  info->src->bytes_in_buffer -= step;
}

// No C++ object may live in a frame that longjmp leaves, so each step is a method with plain locals
// only.
class JpegReader {
 public:
  explicit JpegReader(std::string_view bytes) {
    info_.err = jpeg_std_error(&trap_.manager);
    trap_.manager.error_exit = on_error;
    trap_.manager.output_message = [](j_common_ptr) {};
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = no_more_input;
    source_.skip_input_data = skip_input;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header() {
    if (setjmp(trap_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.src = &source_;
    return jpeg_read_header(&info_, TRUE) == JPEG_HEADER_OK || fail(kTruncated);
  }

  // Rows of 3 bytes a pixel, or of 4 when num_components() is 4.
  bool read_pixels(uint8_t* pixels) {
    if (setjmp(trap_.jump) != 0) return false;
    info_.out_color_space = num_components() == 4 ? JCS_CMYK : JCS_RGB;
    if (!jpeg_start_decompress(&info_)) return fail(kTruncated);
    const size_t stride = size_t{info_.output_width} * info_.output_components;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW rows[8];
      for (JDIMENSION i = 0; i < 8; ++i) rows[i] = pixels + (info_.output_scanline + i) * stride;
      const JDIMENSION left = info_.output_height - info_.output_scanline;
      if (jpeg_read_scanlines(&info_, rows, std::min<JDIMENSION>(left, 8)) == 0) {
        return fail(kTruncated);
      }
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  uint32_t width() const { return info_.image_width; }
  uint32_t height() const { return info_.image_height; }
  int num_components() const { return info_.num_components; }
  const char* message() const { return trap_.message; }

 private:
  bool fail(const char* message) {
    std::snprintf(trap_.message, sizeof(trap_.message), "%s", message);
    return false;
  }

  jpeg_decompress_struct info_{};
  jpeg_source_mgr source_{};
  Trap trap_{};
};

ImageSize read_header(JpegReader& reader, const std::string& place) {
  if (!reader.read_header()) throw_damaged(place, "JPEG", reader.message());
  return checked_size(reader.width(), reader.height(), place);
}

uint8_t multiply_255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

// Four-component JPEGs hold inverted ink with or without Adobe's marker (so Pillow reads them): 255
// means none.
void cmyk_to_rgb(const std::vector<uint8_t>& cmyk, RgbImage& image) {
  const uint8_t* from = cmyk.data();
  uint8_t* to = image.pixels.data();
  for (size_t i = 0; i < cmyk.size() / 4; ++i, from += 4, to += 3) {
    const uint8_t light = from[3];
    for (int c = 0; c < 3; ++c) to[c] = light - multiply_255(255 - from[c], light);
  }
}

}  // namespace

ImageSize jpeg_size(std::string_view bytes, const std::string& place) {
  JpegReader reader(bytes);
  return read_header(reader, place);
}

RgbImage decode_jpeg(std::string_view bytes, const std::string& place) {
  JpegReader reader(bytes);
  const ImageSize size = read_header(reader, place);
  const int num_components = reader.num_components();
  if (num_components != 1 && num_components != 3 && num_components != 4) {
    throw_unsupported(place, "JPEG", fmt::format("{} colour components", num_components));
  }
  RgbImage image = new_image(size);
  std::vector<uint8_t> cmyk;
  if (num_components == 4) cmyk.resize(image.pixels.size() / 3 * 4);
  if (!reader.read_pixels(num_components == 4 ? cmyk.data() : image.pixels.data())) {
    throw_damaged(place, "JPEG", reader.message());
  }
  if (num_components == 4) cmyk_to_rgb(cmyk, image);
  return image;
}

}  // namespace shardloom::data::codec
