// WebP through libwebp; of an animation the first frame, on a black canvas (as Pillow's
// convert("RGB") shows it).
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "shardloom/data/image/codec.h"

namespace shardloom::data::codec {
namespace {

const char* describe(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "libwebp ran out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that libwebp does not support";
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the data ends before the picture does (truncated file)";
    default:
      return "the data cannot be decoded";
  }
}

}  // namespace

ImageSize webp_size(std::string_view bytes, const std::string& place) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status =
      WebPGetFeatures(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &features);
  if (status != VP8_STATUS_OK) throw_damaged(place, "WebP", describe(status));
  return checked_size(features.width, features.height, place);
}

RgbImage decode_webp(std::string_view bytes, const std::string& place) {
  const ImageSize size = webp_size(bytes, place);
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data),
                                                                         &WebPDemuxDelete);
  if (demuxer == nullptr) {
    throw_damaged(place, "WebP", "its chunks are incomplete or malformed (truncated file?)");
  }
  WebPIterator first{};
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> release(
      &first, &WebPDemuxReleaseIterator);
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &first)) throw_damaged(place, "WebP", "it has no frame");
  const bool inside = first.width > 0 && first.height > 0 && first.x_offset >= 0 &&
                      first.y_offset >= 0 && first.width <= size.width - first.x_offset &&
                      first.height <= size.height - first.y_offset;
  if (!inside) throw_damaged(place, "WebP", "the first frame does not fit into the picture");

  RgbImage image = new_image(size);
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) throw_damaged(place, "WebP", "libwebp cannot start");
  const size_t stride = size_t{3} * size.width;
  const size_t start = first.y_offset * stride + size_t{3} * first.x_offset;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.pixels.data() + start;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = image.pixels.size() - start;
  const VP8StatusCode status = WebPDecode(first.fragment.bytes, first.fragment.size, &config);
  if (status != VP8_STATUS_OK) throw_damaged(place, "WebP", describe(status));
  return image;
}

}  // namespace shardloom::data::codec
