#include "shardloom/features/activation_offload.h"

#include "shardloom/base/error.h"
#include "shardloom/features/offloaded_storage.h"
#include "shardloom/features/saved_tensor_hooks.h"

namespace shardloom::features {
namespace {

// A saved tensor whose memory is on the host.
class OffloadedTensor final : public PackedTensor {
 public:
  OffloadedTensor(const at::Tensor& variable,
                  std::shared_ptr<OffloadedStorage> storage,
                  std::shared_ptr<BlockRecord> record)
      : options_(variable.options().requires_grad(false)),
        sizes_(variable.sizes().vec()),
        strides_(variable.strides().vec()),
        offset_(variable.storage_offset()),
        storage_(std::move(storage)),
        record_(std::move(record)) {
    storage_->add_user();
  }

  at::Tensor unpack() override {
    const at::NoGradGuard no_grad;
    record_->prefetch_previous();
    return at::empty({0}, options_).set_(storage_->get(), offset_, sizes_, strides_);
  }

 private:
  at::TensorOptions options_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  int64_t offset_;
  std::shared_ptr<OffloadedStorage> storage_;
  std::shared_ptr<BlockRecord> record_;
};

// One of the last block, which only tells that backward has begun.
class KeptTensor final : public PackedTensor {
 public:
  KeptTensor(const at::Tensor& variable, std::shared_ptr<BlockRecord> record)
      : tensor_(variable), record_(std::move(record)) {}

  at::Tensor unpack() override {
    record_->prefetch_previous();
    return tensor_.get();
  }

 private:
  UnchangedTensor tensor_;
  std::shared_ptr<BlockRecord> record_;
};

// Of one call of a block.
class OffloadHooks final : public SavedTensorHooks {
 public:
  OffloadHooks(const at::Tensor& hidden,
               bool is_last,
               std::shared_ptr<OffloadTraffic> traffic,
               std::shared_ptr<BlockRecord> record)
      : hidden_(hidden.storage()),
        is_last_(is_last),
        traffic_(std::move(traffic)),
        record_(std::move(record)) {}

  std::shared_ptr<PackedTensor> pack(const at::Tensor& variable) override {
    if (!variable.requires_grad() || !variable.has_storage() ||
        !variable.storage().is_alias_of(hidden_) || is_parameter(variable) || hidden_.nbytes() == 0)
      return nullptr;
    if (is_last_) return std::make_shared<KeptTensor>(variable, record_);
    return std::make_shared<OffloadedTensor>(variable, copy_of(variable._version()), record_);
  }

 private:
  // Views of one version share a copy; a change in place makes another.
  std::shared_ptr<OffloadedStorage> copy_of(int64_t version) {
    for (const auto& [copied_version, copy] : copies_) {
      if (copied_version == version) return copy;
    }
    auto copy = std::make_shared<OffloadedStorage>(hidden_, traffic_);
    record_->add(copy);
    copies_.emplace_back(version, copy);
    return copy;
  }

  c10::Storage hidden_;
  bool is_last_;
  std::shared_ptr<OffloadTraffic> traffic_;
  std::shared_ptr<BlockRecord> record_;
  std::vector<std::pair<int64_t, std::shared_ptr<OffloadedStorage>>> copies_;
};

}  // namespace

class OffloadWrapper final : public nn::CallWrapper {
 public:
  OffloadWrapper(size_t index, std::shared_ptr<OffloadTraffic> traffic)
      : index_(index), traffic_(std::move(traffic)) {}

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    const auto inputs = call->inputs();
    if (!at::GradMode::is_enabled() || inputs.empty() || !is_hidden_state(*inputs[0])) {
      inner();
      return;
    }
    auto& calls = traffic_->last_calls_;
    auto record = std::make_shared<BlockRecord>(index_ > 0 ? calls[index_ - 1]
                                                           : std::weak_ptr<BlockRecord>());
    calls[index_] = record;
    const SavedTensorScope scope(std::make_shared<OffloadHooks>(
        *inputs[0], index_ + 1 == calls.size(), traffic_, std::move(record)));
    inner();
  }

 private:
  // Floating, trained through, and alone on its memory.
  static bool is_hidden_state(const at::Tensor& input) {
    return input.defined() && at::isFloatingType(input.scalar_type()) && input.requires_grad() &&
           input.has_storage() && input.is_non_overlapping_and_dense() &&
           input.nbytes() == input.storage().nbytes();
  }

  size_t index_;
  std::shared_ptr<OffloadTraffic> traffic_;
};

ActivationOffload::ActivationOffload(const std::vector<nn::Module*>& blocks)
    : traffic_(std::make_shared<OffloadTraffic>(blocks.size())) {
  install_saved_tensor_engine();
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i]->is_callable()) {
      throw ConfigError(
          "activation offload: entry {} of the list has no forward of its own; name the blocks "
          "below it",
          i);
    }
    blocks[i]->add_wrapper(std::make_shared<OffloadWrapper>(i, traffic_));
  }
}

OffloadCounters ActivationOffload::counters() const { return traffic_->counters(); }

}  // namespace shardloom::features
