#include "shardloom/checkpoint/dcp/torch_item.h"

#include <charconv>
#include <optional>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/box.h"
#include "shardloom/checkpoint/dcp/pickle_writer.h"
#include "shardloom/checkpoint/dcp/torch_dtype.h"
#include "shardloom/checkpoint/dcp/unpickler.h"

namespace shardloom::checkpoint::dcp {
namespace {

using Kind = PickleNode::Kind;

// The archive versions that PyTorch 2.11 reads.
constexpr int kMinVersion = 1;
constexpr int kMaxVersion = 10;

void check_format(const ZipArchive& archive) {
  std::string_view version = archive.get("version").data;
  if (version.ends_with('\n')) version.remove_suffix(1);
  int number = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != version.data() + version.size() ||
      number < kMinVersion || number > kMaxVersion) {
    throw CheckpointError("{}: archive version \"{}\"; {} to {} are read", archive.place(),
                          version.substr(0, 20), kMinVersion, kMaxVersion);
  }
  const ZipEntry* order = archive.find("byteorder");
  if (order != nullptr && order->data != "little") {
    throw CheckpointError("{}: byte order \"{}\"; only little is read", archive.place(),
                          order->data.substr(0, 20));
  }
}

PickleTree read_pickle(const ZipArchive& archive) {
  check_format(archive);
  const ZipEntry& entry = archive.get("data.pkl");
  archive.check_crc(entry);
  return unpickle(entry.data, archive.place() + ", data.pkl");
}

class TensorParser {
 public:
  explicit TensorParser(TensorItem& item) : item_(item) {}

  void parse(const PickleNode& root) {
    const PickleNode* tensor = &root;
    if (tensor->is_object("torch._utils _rebuild_parameter") &&
        !tensor->arguments().children().empty()) {
      tensor = tensor->arguments().children()[0];
    }
    const bool untyped = tensor->is_object("torch._utils _rebuild_tensor_v3");
    if (!untyped && !tensor->is_object("torch._utils _rebuild_tensor_v2")) {
      fail(fmt::format("holds {}, not a tensor", describe(*tensor)));
    }
    const auto& arguments = tensor->arguments().children();
    if (arguments.size() < (untyped ? 7 : 6)) fail("the tensor lacks arguments");
    const uint64_t numel = parse_storage(*arguments[0]);
    if (untyped) {
      const auto dtype = parse_torch_dtype(text_of(*arguments[6], Kind::kGlobal));
      if (!dtype) fail(fmt::format("{} is no element type", describe(*arguments[6])));
      item_.dtype = *dtype;
    }
    item_.shape = ints_of(*arguments[2], "shape");
    item_.strides = ints_of(*arguments[3], "strides");
    set_data(numel, *arguments[1]);
  }

 private:
  [[noreturn]] void fail(const std::string& cause) const {
    throw CheckpointError("{}: {}", item_.archive.place(), cause);
  }

  std::string_view text_of(const PickleNode& node, Kind kind) const {
    if (!node.is(kind)) fail(fmt::format("{} where a name is due", describe(node)));
    return node.text();
  }

  std::vector<int64_t> ints_of(const PickleNode& node, const char* what) const {
    auto values = int_list(node);
    if (!values) fail(fmt::format("the {} is {}", what, describe(node)));
    for (const int64_t value : *values) {
      if (value < 0) fail(fmt::format("the {} {} has a negative part", what, shape_text(*values)));
    }
    return *std::move(values);
  }

  // ('storage', class, key, location, elements); returns the elements, or bytes when untyped.
  uint64_t parse_storage(const PickleNode& node) {
    if (!node.is(Kind::kPersistentId)) fail(fmt::format("{} for a storage", describe(node)));
    const auto& id = node.children()[0]->children();
    if (!node.children()[0]->is(Kind::kTuple) || id.size() != 5 || !id[4]->is(Kind::kInt) ||
        id[4]->integer() < 0 || text_of(*id[0], Kind::kText) != "storage") {
      fail("the reference to the storage is damaged");
    }
    const std::string_view type = text_of(*id[1], Kind::kGlobal);
    if (type != "torch.storage UntypedStorage") {
      const auto dtype = parse_torch_storage(type);
      if (!dtype) fail(fmt::format("element type of {} is not read here", type));
      item_.dtype = *dtype;
    } else {
      item_.dtype = DType::kU8;
    }
    item_.storage = item_.archive.get(fmt::format("data/{}", text_of(*id[2], Kind::kText)));
    const auto bytes = tensor_bytes(item_.dtype, {id[4]->integer()});
    if (bytes != item_.storage.data.size()) {
      fail(fmt::format("{} has {} bytes, the tensor says {} elements of {}", item_.storage.name,
                       item_.storage.data.size(), id[4]->integer(), dtype_name(item_.dtype)));
    }
    return static_cast<uint64_t>(id[4]->integer());
  }

  void set_data(uint64_t numel, const PickleNode& offset) {
    if (item_.strides.size() != item_.shape.size() || !offset.is(Kind::kInt) ||
        offset.integer() < 0) {
      fail(fmt::format("shape {}, strides {} and offset {} do not fit together",
                       shape_text(item_.shape), shape_text(item_.strides), describe(offset)));
    }
    const uint64_t element = dtype_bits(item_.dtype) / 8;
    const uint64_t available = item_.storage.data.size() / element;
    const auto first = static_cast<uint64_t>(offset.integer());
    bool fits = first <= available && tensor_bytes(item_.dtype, item_.shape).has_value();
    uint64_t last = first;
    bool is_empty = false;
    for (size_t i = 0; i < item_.shape.size(); ++i) {
      uint64_t step = 0;
      is_empty |= item_.shape[i] == 0;
      const auto count = static_cast<uint64_t>(item_.shape[i]) - (item_.shape[i] > 0 ? 1 : 0);
      fits &= !__builtin_mul_overflow(count, static_cast<uint64_t>(item_.strides[i]), &step) &&
              !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || (!is_empty && last >= available)) {
      fail(fmt::format("shape {}, strides {}, offset {} reach past the storage of {} elements",
                       shape_text(item_.shape), shape_text(item_.strides), first, numel));
    }
    item_.data = item_.storage.data.substr(is_empty ? 0 : first * element);
  }

  TensorItem& item_;
};

}  // namespace

TensorItem read_tensor_item(std::string_view bytes, const std::string& place) {
  TensorItem item{.archive = ZipArchive(bytes, place)};
  const PickleTree tree = read_pickle(item.archive);
  TensorParser(item).parse(tree.root());
  return item;
}

PythonValue read_value_item(std::string_view bytes, const std::string& place) {
  const PickleTree tree = read_pickle(ZipArchive(bytes, place));
  return to_python_value(tree.root(), place);
}

void check_item_crcs(std::string_view bytes,
                     const std::string& place,
                     const ZipArchive::PieceDone& done) {
  const ZipArchive archive(bytes, place);
  check_format(archive);
  for (const ZipEntry& entry : archive.entries()) archive.check_crc(entry, done);
}

std::string tensor_item_pickle(DType dtype, const std::vector<int64_t>& shape) {
  const auto bytes = tensor_bytes(dtype, shape);
  SHARDLOOM_CHECK(bytes.has_value(), "shape {}", shape_text(shape));
  const auto storage = torch_storage_global(dtype);
  PickleWriter pickle;
  pickle.global(storage ? "torch._utils _rebuild_tensor_v2" : "torch._utils _rebuild_tensor_v3");
  pickle.mark();
  pickle.mark();
  pickle.text("storage");
  pickle.global(storage ? *storage : "torch.storage UntypedStorage");
  pickle.text("0");
  pickle.text("cpu");
  pickle.integer(static_cast<int64_t>(storage ? *bytes / (dtype_bits(dtype) / 8) : *bytes));
  pickle.tuple();
  pickle.persistent_id();
  pickle.integer(0);
  pickle.int_tuple(shape);
  pickle.int_tuple(dense_strides(shape));
  pickle.boolean(false);  // requires_grad
  pickle.global("collections OrderedDict");
  pickle.empty_tuple();
  pickle.reduce();
  if (!storage) pickle.global(torch_dtype_global(dtype));
  pickle.tuple();
  pickle.reduce();
  return std::move(pickle).finish();
}

std::string value_item_pickle(const PythonValue& value) {
  PickleWriter pickle;
  pickle.value(value);
  return std::move(pickle).finish();
}

}  // namespace shardloom::checkpoint::dcp
