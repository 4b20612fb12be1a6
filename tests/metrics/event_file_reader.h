// A small reader of TensorBoard event files, written apart from the writer: it computes each CRC
// bit by bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::trainer {

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  int session_status = 0;
  std::map<std::string, float> scalars;
};

inline uint32_t slow_masked_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = ((crc ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (out ? 0x82F63B78 : 0);
    }
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

inline ReadEvent parse_event(std::string_view bytes) {
  ReadEvent event;
  protozero::pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    if (message.tag() == 1) {
      event.wall_time = message.get_double();
    } else if (message.tag() == 2) {
      event.step = message.get_int64();
    } else if (message.tag() == 3) {
      event.file_version = message.get_string();
    } else if (message.tag() == 5) {
      protozero::pbf_reader summary = message.get_message();
      while (summary.next(1)) {
        protozero::pbf_reader value = summary.get_message();
        std::string tag;
        while (value.next()) {
          if (value.tag() == 1) {
            tag = value.get_string();
          } else if (value.tag() == 2) {
            event.scalars[tag] = value.get_float();
          } else {
            throw std::runtime_error("unknown field of a value");
          }
        }
      }
    } else if (message.tag() == 7) {
      protozero::pbf_reader session = message.get_message();
      while (session.next(1)) event.session_status = session.get_enum();
    } else {
      throw std::runtime_error("unknown field of an event");
    }
  }
  return event;
}

// Throws std::runtime_error at the first record that is cut off or whose CRC is wrong.
inline std::vector<ReadEvent> read_event_file(std::string_view content) {
  const auto number = [&](size_t at, size_t bytes) {
    if (at + bytes > content.size()) throw std::runtime_error("record cut off");
    uint64_t value = 0;
    std::memcpy(&value, content.data() + at, bytes);
    return value;
  };
  std::vector<ReadEvent> events;
  for (size_t at = 0; at < content.size();) {
    const size_t length = number(at, 8);
    if (number(at + 8, 4) != slow_masked_crc32c(content.substr(at, 8))) {
      throw std::runtime_error("CRC of the length is wrong");
    }
    if (number(at + 12 + length, 4) != slow_masked_crc32c(content.substr(at + 12, length))) {
      throw std::runtime_error("CRC of the message is wrong");
    }
    events.push_back(parse_event(content.substr(at + 12, length)));
    at += 16 + length;
  }
  return events;
}

}  // namespace shardloom::trainer
