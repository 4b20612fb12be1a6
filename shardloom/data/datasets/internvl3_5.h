// dataset_type "internvl3_5": ShareGPT JSON lines with pictures for InternVL3.5.
//
// Arrays of a sample (S tokens, T tiles of size x size):
//   input_ids [S], labels [S] (not shifted, -100 = no target), pixel_values float32 [T, 3, size,
//   size], image_flags [T]
// A text-only sample has one white tile with image_flags 0, so that the vision tower takes part in
// every batch. Arrays of a batch: input_ids, labels, attention_mask [B, S] (right padding; the mask
// comes from the lengths), and pixel_values, image_flags joined in batch order. A batch without
// samples has B = 0 and T = 0.
#pragma once

#include "shardloom/data/dataset.h"
#include "shardloom/data/jsonl.h"
#include "shardloom/data/model_facts.h"
#include "shardloom/data/picture.h"
#include "shardloom/data/record.h"
#include "shardloom/tokenizer/chat_template.h"

namespace shardloom::data {

class InternVL35Dataset : public Dataset {
 public:
  // Opens the JSONL files and the tokenizer. Throws ConfigError when the image size does not fit
  // the model's patches.
  InternVL35Dataset(const config::DatasetParam& param, const ModelFacts& facts);
  InternVL35Dataset(const InternVL35Dataset&) = delete;  // template_ refers to tokenizer_
  InternVL35Dataset& operator=(const InternVL35Dataset&) = delete;

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  std::string place(int64_t index) const override { return files_.place(index); }
  SampleView view(int64_t index) const override;
  Batch collate(const std::vector<Sample>& samples) const override;
  std::string fingerprint() const override;

 private:
  struct Prepared {
    std::vector<Picture> pictures;
    tokenizer::RenderedChat chat;
    bool is_truncated = false;
  };
  Prepared prepare(int64_t index) const;
  std::vector<Picture> load_pictures(const Record& record, const std::string& place) const;
  bool truncate(tokenizer::RenderedChat& chat,
                const std::vector<Picture>& pictures,
                const std::string& place) const;
  void check_ids(const tokenizer::RenderedChat& chat, const std::string& place) const;
  Sample to_sample(int64_t index, Prepared prepared) const;

  config::DatasetParam param_;
  ModelFacts facts_;
  RecordFormat format_;
  JsonlFiles files_;
  tokenizer::Tokenizer tokenizer_;
  tokenizer::ChatTemplate template_;
  int64_t image_size_ = 0;
  int64_t tokens_per_tile_ = 0;
  int64_t size_ = 0;
};

}  // namespace shardloom::data
