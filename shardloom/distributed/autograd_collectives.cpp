#include "shardloom/distributed/autograd_collectives.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

namespace shardloom::distributed {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What the autograd node of a call keeps.
struct Exchange : torch::CustomClassHolder {
  std::vector<int64_t> output_splits, input_splits;
  std::shared_ptr<Group> group;
  std::string label;

  at::Tensor run(const at::Tensor& input, bool backward) const {
    const auto& to = backward ? output_splits : input_splits;
    const auto& from = backward ? input_splits : output_splits;
    std::vector<int64_t> shape = input.sizes().vec();
    shape[0] = std::accumulate(from.begin(), from.end(), int64_t{0});
    at::Tensor output = at::empty(shape, input.options().requires_grad(false));
    group->all_to_all(output, input.contiguous(), from, to, label).wait();
    return output;
  }
};

class AllToAllRows : public Function<AllToAllRows> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& input,
                            const c10::intrusive_ptr<Exchange>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->run(input, /*backward=*/false);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call = ctx->saved_data["call"].toCapsule();
    return {static_cast<const Exchange&>(*call).run(grads[0], /*backward=*/true), at::Tensor()};
  }
};

// Parts of the ranks along a dimension, joined or summed.
struct Parts : torch::CustomClassHolder {
  int64_t dim = 0;
  std::vector<int64_t> sizes;
  std::shared_ptr<Group> group;
  std::string label;

  int64_t largest() const { return *std::max_element(sizes.begin(), sizes.end()); }

  // Parts travel padded to the largest one.
  at::Tensor gather(const at::Tensor& part) const {
    const at::Tensor rows = part.movedim(dim, 0);
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = largest();
    at::Tensor padded = at::zeros(shape, part.options().requires_grad(false));
    padded.narrow(0, 0, rows.size(0)).copy_(rows);
    shape[0] *= static_cast<int64_t>(sizes.size());
    at::Tensor all = at::empty(shape, padded.options());
    group->all_gather(all, padded, label).wait();
    std::vector<at::Tensor> parts;
    for (size_t r = 0; r < sizes.size(); ++r)
      parts.push_back(all.narrow(0, static_cast<int64_t>(r) * largest(), sizes[r]));
    return at::cat(parts).movedim(0, dim).contiguous();
  }

  at::Tensor reduce(const at::Tensor& whole) const {
    const at::Tensor rows = whole.movedim(dim, 0);
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = largest() * static_cast<int64_t>(sizes.size());
    at::Tensor padded = at::zeros(shape, whole.options().requires_grad(false));
    int64_t first = 0;
    for (size_t r = 0; r < sizes.size(); ++r) {
      padded.narrow(0, static_cast<int64_t>(r) * largest(), sizes[r])
          .copy_(rows.narrow(0, first, sizes[r]));
      first += sizes[r];
    }
    shape[0] = largest();
    at::Tensor own = at::empty(shape, padded.options());
    group->reduce_scatter(own, padded, Reduction::kSum, label).wait();
    return own.narrow(0, 0, sizes[group->rank()]).movedim(0, dim).contiguous();
  }
};

// Each is the other's backward.
template <bool gathers>
class MoveParts : public Function<MoveParts<gathers>> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& input,
                            const c10::intrusive_ptr<Parts>& parts) {
    ctx->saved_data["parts"] = c10::IValue::make_capsule(parts);
    return gathers ? parts->gather(input) : parts->reduce(input);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto capsule = ctx->saved_data["parts"].toCapsule();
    const auto& parts = static_cast<const Parts&>(*capsule);
    return {gathers ? parts.reduce(grads[0]) : parts.gather(grads[0]), at::Tensor()};
  }
};

c10::intrusive_ptr<Parts> make_parts(int64_t dim,
                                     const std::vector<int64_t>& sizes,
                                     const std::shared_ptr<Group>& group,
                                     const std::string& label) {
  auto parts = c10::make_intrusive<Parts>();
  parts->dim = dim;
  parts->sizes = sizes;
  parts->group = group;
  parts->label = label;
  return parts;
}

}  // namespace

at::Tensor all_to_all_rows(const at::Tensor& input,
                           const std::vector<int64_t>& output_splits,
                           const std::vector<int64_t>& input_splits,
                           const std::shared_ptr<Group>& group,
                           const std::string& label) {
  auto call = c10::make_intrusive<Exchange>();
  call->output_splits = output_splits;
  call->input_splits = input_splits;
  call->group = group;
  call->label = label;
  return AllToAllRows::apply(input, call);
}

at::Tensor gather_along(const at::Tensor& part,
                        int64_t dim,
                        const std::vector<int64_t>& sizes,
                        const std::shared_ptr<Group>& group,
                        const std::string& label) {
  return MoveParts<true>::apply(part, make_parts(dim, sizes, group, label));
}

at::Tensor reduce_along(const at::Tensor& whole,
                        int64_t dim,
                        const std::vector<int64_t>& sizes,
                        const std::shared_ptr<Group>& group,
                        const std::string& label) {
  return MoveParts<false>::apply(whole, make_parts(dim, sizes, group, label));
}

}  // namespace shardloom::distributed
