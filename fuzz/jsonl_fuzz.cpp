// Arbitrary bytes as a JSONL file: indexing, parsing and the checks of a record end in a record or
// in a DataError.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "shardloom/data/jsonl.h"
#include "shardloom/data/record.h"

namespace {

using namespace shardloom;

// What holds for every record that is accepted.
void check_record(const data::Record& record, bool as_text) {
  const int64_t tags = tokenizer::count_image_tags(record.messages);
  const auto images = static_cast<int64_t>(record.images.size());
  if (record.messages.empty()) std::abort();
  if (tags != images && !(as_text && images == 0)) std::abort();
  if (as_text) return;
  for (const auto& message : record.messages) {
    if (tokenizer::find_structural_token(message.text)) std::abort();
  }
}

void read_all(const std::filesystem::path& path) {
  const data::JsonlFiles files({path});
  for (int64_t i = 0; i < files.size(); ++i) {
    if (files.line(i).find('\n') != std::string_view::npos) std::abort();
    for (const bool as_text : {false, true}) {
      try {
        check_record(data::parse_record(files.line(i), files.place(i),
                                        {.attr = {}, .structural_tokens_as_text = as_text}),
                     as_text);
      } catch (const DataError&) {
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const int file = memfd_create("jsonl", MFD_CLOEXEC);
  static const std::string path = fmt::format("/proc/self/fd/{}", file);
  if (ftruncate(file, 0) != 0 || pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  try {
    read_all(path);
  } catch (const DataError&) {
  }
  return 0;
}
