#include "shardloom/checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/checkpoint_reader.h"
#include "shardloom/checkpoint/collective_text.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/save_plan.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/staged_folder.h"

namespace shardloom::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 8 << 20;  // handed to the file at once
constexpr int64_t kAlignment = 64;        // of a tensor in the staging buffer

uint64_t bytes_of(const TensorSpec& spec, const dcp::Box& box) {
  return spec_bytes({spec.name, spec.dtype, box.sizes});
}

// Nothing of a tensor that has elements: an empty chunk tells a reader nothing.
bool is_needless(const StateTensor& state) {
  return state.tensor.local.numel() == 0 && dcp::volume(state.tensor.shape) > 0;
}

// The rows in the file's type, piece by piece; a copy only where type, place or strides ask for it.
void emit(const at::Tensor& rows,
          at::ScalarType type,
          const std::stop_token& stop,
          const dcp::RankWriter::Sink& sink) {
  const auto to_file = at::TensorOptions().device(at::kCPU).dtype(type);
  const at::Tensor flat = rows.dim() == 0 ? rows.view({1}) : rows;
  const int64_t row_bytes = std::max<int64_t>(
      1, flat.numel() / std::max<int64_t>(1, flat.size(0)) * at::elementSize(type));
  const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t row = 0; row < flat.size(0); row += step) {
    if (stop.stop_requested()) throw CheckpointError("the run ended before the save");
    const at::Tensor piece =
        flat.narrow(0, row, std::min(step, flat.size(0) - row)).to(to_file).contiguous();
    sink({static_cast<const char*>(piece.const_data_ptr()), piece.nbytes()});
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(std::filesystem::path root,
                                 std::shared_ptr<distributed::Group> ranks,
                                 const CheckpointSaverOptions& options)
    : root_(std::move(root)), ranks_(std::move(ranks)), options_(options) {}

CheckpointSaver::~CheckpointSaver() {
  if (!open_) return;
  thread_ = {};              // asks it to stop, joins
  abandon_staging(folder_);  // every rank: the last one to stop writing finds nobody else at work
}

// After a failure nothing of the attempt is left, and the next save starts afresh.
void CheckpointSaver::attempt(const char* step, const std::function<void()>& action) {
  try {
    together(*ranks_, fmt::format("{} {}", step, folder_.string()), action);
  } catch (const CheckpointError&) {
    open_ = false;
    if (ranks_->rank() == 0) abandon_staging(folder_);
    throw;
  }
}

std::vector<CheckpointSaver::Item> CheckpointSaver::own_items(const CheckpointState& state) {
  std::vector<Item> items;
  std::vector<HeldRows> held;
  for (const StateTensor& t : state.tensors) {
    if (is_needless(t)) continue;
    const distributed::ShardedTensor& tensor = t.tensor;
    Item item{t.key, {t.key.name, t.dtype, tensor.shape}, rows_box(tensor), tensor.local.detach()};
    held.push_back({t.key.name, tensor.first_row, bytes_of(item.spec, item.box)});
    items.push_back(std::move(item));
  }
  std::vector<std::vector<HeldRows>> of_ranks;
  for (const std::string& text : all_gather_text(*ranks_, to_text(held), "rows to save"))
    of_ranks.push_back(held_rows_from_text(text));
  const auto writes = assign_writers(of_ranks);
  total_bytes_ = 0;
  for (size_t rank = 0; rank < writes.size(); ++rank) {
    for (size_t i = 0; i < writes[rank].size(); ++i)
      total_bytes_ += writes[rank][i] ? of_ranks[rank][i].bytes : 0;
  }
  std::vector<Item> own;
  for (size_t i = 0; i < items.size(); ++i) {
    if (writes[static_cast<size_t>(ranks_->rank())][i]) own.push_back(std::move(items[i]));
  }
  return own;
}

int64_t CheckpointSaver::staged_bytes(const Item& item) {
  const auto bytes = static_cast<int64_t>(bytes_of(item.spec, item.box));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void CheckpointSaver::reserve_staging(const std::vector<Item>& items) {
  int64_t total = 0;
  for (const Item& item : items) total += staged_bytes(item);
  if (total <= staging_.bytes()) return;
  staging_.prepare(total);
  log::info("save_async: {} of memory on this rank for the copy that is written",
            human_bytes(static_cast<uint64_t>(total)));
}

void CheckpointSaver::prepare(const CheckpointState& state) {
  if (!options_.in_background) return;
  const std::vector<Item> items = own_items(state);
  together(*ranks_, "save_async", [&] { reserve_staging(items); });
}

void CheckpointSaver::stage(std::vector<Item>& items) {
  reserve_staging(items);
  char* target = staging_.get();
  for (Item& item : items) {
    const at::Tensor copy =
        at::from_blob(target, item.rows.sizes(), scalar_type_of_state(item.spec.dtype));
    copy.copy_(item.rows);
    item.rows = copy;
    target += staged_bytes(item);
  }
}

void CheckpointSaver::write(const std::vector<Item>& items,
                            const std::vector<StateValue>& values,
                            const std::stop_token& stop) {
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    uint64_t expected = 0;
    for (const Item& item : items) expected += bytes_of(item.spec, item.box);
    dcp::RankWriter writer(staging_folder(folder_), ranks_->rank(), expected);
    if (ranks_->rank() == 0) {
      for (const StateValue& value : values)
        writer.add_value(value.key.name, value.key.path, value.value);
    }
    for (const Item& item : items) {
      writer.add_tensor(item.spec, item.box, item.key.path, [&](const auto& sink) {
        emit(item.rows, scalar_type_of_state(item.spec.dtype), stop, sink);
      });
    }
    part_ = writer.finish();
  } catch (...) {
    error_ = std::current_exception();
  }
  written_ = true;
}

void CheckpointSaver::save(int64_t iteration, const CheckpointState& state) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  finish();
  began_ = std::chrono::steady_clock::now();
  iteration_ = iteration;
  folder_ = checkpoint_folder(root_, iteration);
  attempt("cannot begin", [&] {
    if (ranks_->rank() == 0) begin_staging(folder_);
  });
  std::vector<Item> items = own_items(state);
  if (options_.in_background) attempt("cannot copy for", [&] { stage(items); });
  open_ = true;
  written_ = false;
  error_ = nullptr;
  part_ = {};
  if (options_.in_background) {
    thread_ = std::jthread([this, items = std::move(items), values = state.values](
                               const std::stop_token& stop) { write(items, values, stop); });
  } else {
    write(items, state.values, {});
    finish();
  }
}

void CheckpointSaver::finish() {
  if (!open_) return;
  if (thread_.joinable()) thread_.join();
  attempt("cannot write", [&] {
    if (error_) std::rethrow_exception(error_);
  });
  const std::vector<std::string> parts =
      all_gather_text(*ranks_, dcp::metadata_pickle(part_), "parts of " + folder_.string());
  attempt("cannot finish", [&] {
    if (ranks_->rank() == 0) put_in_place(parts);
  });
  open_ = false;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
  log::info("saved {} ({} in {:.1f} s{})", folder_.string(), human_bytes(total_bytes_),
            seconds.count(), options_.in_background ? ", in the background" : "");
}

void CheckpointSaver::put_in_place(const std::vector<std::string>& parts) {
  const std::filesystem::path staging = staging_folder(folder_);
  dcp::Metadata all;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::string place = fmt::format("{}, part of rank {}", staging.string(), rank);
    dcp::merge_metadata(all, dcp::parse_metadata(parts[rank], place), place);
  }
  dcp::write_metadata(staging, all);
  publish_staging(folder_);
  write_latest(root_, iteration_);
  if (options_.keep_last > 0) remove_older(root_, iteration_, options_.keep_last);
}

}  // namespace shardloom::checkpoint
