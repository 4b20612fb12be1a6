#include "shardloom/ops/moe.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "shardloom/base/error.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows of the permuted order: expert e owns rows [first[e], first[e+1]); row r is slot
// slot_of_row[r] = t*K + k.
struct Permutation {
  std::vector<int64_t> first;
  std::vector<int64_t> slot_of_row;
  std::vector<int64_t> row_of_slot;
};

Permutation permute_by_expert(const at::Tensor& experts_TK, int64_t num_experts) {
  const int64_t slots = experts_TK.numel();
  const at::Tensor experts = experts_TK.to(at::kCPU).contiguous();
  const int64_t* ids = experts.const_data_ptr<int64_t>();
  Permutation p;
  p.first.assign(num_experts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) {
    SHARDLOOM_CHECK(ids[s] >= 0 && ids[s] < num_experts, "expert id {} of {}", ids[s], num_experts);
    ++p.first[ids[s] + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) p.first[e + 1] += p.first[e];
  std::vector<int64_t> next(p.first.begin(), p.first.end() - 1);
  p.slot_of_row.resize(slots);
  p.row_of_slot.resize(slots);
  for (int64_t s = 0; s < slots; ++s) {
    const int64_t row = next[ids[s]]++;
    p.slot_of_row[row] = s;
    p.row_of_slot[s] = row;
  }
  return p;
}

// The slots of each token in ascending order of their rows, i.e. of their experts: the fixed order
// of summation.
void sort_slots(const Permutation& p, int64_t token, int64_t k, int64_t* slots) {
  for (int64_t j = 0; j < k; ++j) slots[j] = token * k + j;
  std::sort(slots, slots + k,
            [&](int64_t a, int64_t b) { return p.row_of_slot[a] < p.row_of_slot[b]; });
}

struct Sizes {
  int64_t T, K, E, H, I;
};

// One expert's slice of a flat weight, in fp32.
at::Tensor expert_weight(const at::Tensor& flat, int64_t expert, int64_t rows) {
  return flat.narrow(0, expert * rows, rows).to(at::kFloat);
}

at::Tensor gather_rows(const at::Tensor& x32, const Permutation& p, int64_t expert, int64_t k) {
  const int64_t first = p.first[expert];
  const int64_t rows = p.first[expert + 1] - first;
  const int64_t width = x32.size(1);
  at::Tensor out = at::empty({rows, width}, x32.options());
  const float* from = x32.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + p.slot_of_row[first + r] / k * width, width, to + r * width);
  }
  return out;
}

// act = silu(gate) * up for rows of [rows, 2I].
at::Tensor activate(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, 1);
  return at::silu(halves[0]).mul_(halves[1]);
}

// The gradient of activate() by gate and up together, [rows, 2I].
at::Tensor activate_backward(const at::Tensor& grad_act, const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, 1);
  return at::cat(
      {at::silu_backward(grad_act * halves[1], halves[0]), at::silu(halves[0]).mul_(grad_act)}, 1);
}

// Values of one expert's rows, taken from / put to the [T*K] slots they belong to.
at::Tensor slot_values(const at::Tensor& slots, const Permutation& p, int64_t first, int64_t rows) {
  at::Tensor values = at::empty({rows, 1}, slots.options());
  for (int64_t r = 0; r < rows; ++r) {
    values.mutable_data_ptr<float>()[r] = slots.const_data_ptr<float>()[p.slot_of_row[first + r]];
  }
  return values;
}

void set_slot_values(const at::Tensor& slots,
                     const Permutation& p,
                     int64_t first,
                     const at::Tensor& values) {
  for (int64_t r = 0; r < values.size(0); ++r) {
    slots.mutable_data_ptr<float>()[p.slot_of_row[first + r]] = values.const_data_ptr<float>()[r];
  }
}

// out = a b, computed in fp32 and rounded when `out` is stored in another type.
void product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (out.scalar_type() == at::kFloat) {
    at::mm_out(out, a, b);
  } else {
    out.copy_(at::mm(a, b));
  }
}

// Runs body(e) for each expert that has tokens; experts in parallel, each one serial inside,
// without autograd.
template <typename Body>
void for_each_expert(const Permutation& p, const Body& body) {
  const auto num_experts = static_cast<int64_t>(p.first.size()) - 1;
  at::parallel_for(0, num_experts, 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t e = begin; e < end; ++e) {
      if (p.first[e + 1] > p.first[e]) body(e, p.first[e], p.first[e + 1] - p.first[e]);
    }
  });
}

// out[t] = sum over the token's rows of scale[slot] * rows[row], ascending experts; scale may be
// null (1).
at::Tensor combine(const at::Tensor& rows,
                   const float* scale,
                   const Permutation& p,
                   const Sizes& n) {
  at::Tensor out = at::zeros({n.T, rows.size(1)}, rows.options());
  const int64_t width = rows.size(1);
  const float* from = rows.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, n.T, 16, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> slots(n.K);
    for (int64_t t = begin; t < end; ++t) {
      sort_slots(p, t, n.K, slots.data());
      for (const int64_t slot : slots) {
        const float w = scale == nullptr ? 1.0f : scale[slot];
        const float* row = from + p.row_of_slot[slot] * width;
        for (int64_t i = 0; i < width; ++i) to[t * width + i] += w * row[i];
      }
    }
  });
  return out;
}

class FusedExperts : public Function<FusedExperts> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weights,
                            const at::Tensor& experts,
                            const at::Tensor& gate_up,
                            const at::Tensor& down) {
    const Sizes n = sizes(x, experts, gate_up, down);
    const auto p = std::make_shared<Permutation>(permute_by_expert(experts, n.E));
    const at::Tensor x32 = x.contiguous().to(at::kFloat);
    const at::Tensor w32 = weights.contiguous().to(at::kFloat);
    at::Tensor hidden = at::empty({n.T * n.K, 2 * n.I}, x.options());
    at::Tensor outputs = at::empty({n.T * n.K, n.H}, x32.options());
    for_each_expert(*p, [&](int64_t e, int64_t first, int64_t rows) {
      const at::Tensor h = hidden.narrow(0, first, rows);
      product_into(h, gather_rows(x32, *p, e, n.K), expert_weight(gate_up, e, n.H));
      product_into(outputs.narrow(0, first, rows), activate(h.to(at::kFloat)),
                   expert_weight(down, e, n.I));
    });
    ctx->save_for_backward({x, weights, experts, gate_up, down, hidden});
    return combine(outputs, w32.const_data_ptr<float>(), *p, n).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weights = saved[1], &experts = saved[2], &gate_up = saved[3],
                     &down = saved[4], &hidden = saved[5];
    const Sizes n = sizes(x, experts, gate_up, down);
    const Permutation p = permute_by_expert(experts, n.E);
    const at::Tensor x32 = x.contiguous().to(at::kFloat);
    const at::Tensor w32 = weights.contiguous().to(at::kFloat);
    const at::Tensor grad32 = grads[0].contiguous().to(at::kFloat);

    at::Tensor grad_gate_up = at::empty_like(gate_up, at::MemoryFormat::Contiguous);
    at::Tensor grad_down = at::empty_like(down, at::MemoryFormat::Contiguous);
    at::Tensor grad_weights = at::empty({n.T * n.K}, w32.options());
    at::Tensor grad_rows = at::empty({n.T * n.K, n.H}, x32.options());
    zero_idle_experts(p, n, grad_gate_up, grad_down);

    for_each_expert(p, [&](int64_t e, int64_t first, int64_t rows) {
      const at::Tensor h = hidden.narrow(0, first, rows).to(at::kFloat);
      const at::Tensor act = activate(h);
      const at::Tensor grad_out = gather_rows(grad32, p, e, n.K);
      const at::Tensor scale = slot_values(w32, p, first, rows);
      // No expert output is kept: d weight = <y, dO> = <act, dO down^T>.
      at::Tensor grad_act = at::mm(grad_out, expert_weight(down, e, n.I).t());
      set_slot_values(grad_weights, p, first, (act * grad_act).sum(1));
      product_into(grad_down.narrow(0, e * n.I, n.I), (act * scale).t(), grad_out);
      const at::Tensor grad_h = activate_backward(grad_act.mul_(scale), h);
      product_into(grad_gate_up.narrow(0, e * n.H, n.H), gather_rows(x32, p, e, n.K).t(), grad_h);
      product_into(grad_rows.narrow(0, first, rows), grad_h, expert_weight(gate_up, e, n.H).t());
    });
    return {combine(grad_rows, nullptr, p, n).to(x.scalar_type()),
            grad_weights.view({n.T, n.K}).to(weights.scalar_type()), at::Tensor(), grad_gate_up,
            grad_down};
  }

 private:
  static Sizes sizes(const at::Tensor& x,
                     const at::Tensor& experts,
                     const at::Tensor& gate_up,
                     const at::Tensor& down) {
    Sizes n{};
    n.T = x.size(0);
    n.K = experts.size(1);
    n.H = x.size(1);
    n.I = gate_up.size(1) / 2;
    n.E = gate_up.size(0) / n.H;
    SHARDLOOM_CHECK(
        gate_up.size(0) == n.E * n.H && down.size(0) == n.E * n.I && down.size(1) == n.H,
        "gate_up [{}, {}] and down [{}, {}] do not fit hidden size {}", gate_up.size(0),
        gate_up.size(1), down.size(0), down.size(1), n.H);
    return n;
  }

  static void zero_idle_experts(const Permutation& p,
                                const Sizes& n,
                                at::Tensor& grad_gate_up,
                                at::Tensor& grad_down) {
    for (int64_t e = 0; e < n.E; ++e) {
      if (p.first[e + 1] > p.first[e]) continue;
      grad_gate_up.narrow(0, e * n.H, n.H).zero_();
      grad_down.narrow(0, e * n.I, n.I).zero_();
    }
  }
};

// Indices of the k largest of each row, largest first, the lower id first among equals (at::topk
// leaves ties open).
at::Tensor top_k_ids(const at::Tensor& probabilities_TE, int64_t k) {
  const at::Tensor p = probabilities_TE.detach();
  if (!p.is_cpu())
    return std::get<1>(at::sort(p, /*stable=*/true, -1, /*descending=*/true))
        .narrow(1, 0, k)
        .contiguous();
  const at::Tensor dense = p.contiguous();
  const int64_t T = dense.size(0), E = dense.size(1);
  at::Tensor ids = at::empty({T, k}, dense.options().dtype(at::kLong));
  const float* from = dense.const_data_ptr<float>();
  int64_t* to = ids.mutable_data_ptr<int64_t>();
  at::parallel_for(0, T, 64, [&](int64_t begin, int64_t end) {
    std::vector<float> row(E);
    for (int64_t t = begin; t < end; ++t) {
      std::copy_n(from + t * E, E, row.begin());
      for (int64_t j = 0; j < k; ++j) {
        const auto best = std::max_element(row.begin(), row.end());  // the first of equals
        to[t * k + j] = best - row.begin();
        *best = -1.0f;  // below every probability
      }
    }
  });
  return ids;
}

}  // namespace

Routing route_top_k(const at::Tensor& logits_TE, int64_t top_k, bool normalize) {
  const at::Tensor probabilities = at::softmax(logits_TE, -1, at::kFloat);
  const at::Tensor experts = top_k_ids(probabilities, top_k);
  at::Tensor weights = probabilities.gather(1, experts);
  if (normalize) weights = weights / weights.sum(-1, /*keepdim=*/true);
  return {weights.to(logits_TE.scalar_type()), experts};
}

at::Tensor moe_experts(const at::Tensor& x_TH,
                       const Routing& routing,
                       const at::Tensor& gate_up,
                       const at::Tensor& down) {
  return FusedExperts::apply(x_TH, routing.weights_TK, routing.experts_TK, gate_up, down);
}

at::Tensor load_balancing_loss(const std::vector<at::Tensor>& logits_TE,
                               int64_t top_k,
                               const at::Tensor& mask_T) {
  const at::Tensor logits = at::cat(logits_TE, 0).to(at::kFloat);
  const int64_t num_experts = logits.size(1);
  const at::Tensor probabilities = at::softmax(logits, -1);
  const at::Tensor chosen = top_k_ids(probabilities, top_k);
  at::Tensor assigned = at::zeros_like(probabilities).scatter_(1, chosen, 1.0);
  at::Tensor mask = mask_T.defined()
                        ? mask_T.to(at::kFloat).repeat({static_cast<int64_t>(logits_TE.size())})
                        : at::ones({logits.size(0)}, logits.options());
  mask = mask.unsqueeze(1);
  const at::Tensor count = mask.sum().clamp_min(1.0);
  const at::Tensor share = (assigned * mask).sum(0) / count;
  const at::Tensor mean_probability = (probabilities * mask).sum(0) / count;
  return (share * mean_probability).sum() * static_cast<double>(num_experts);
}

}  // namespace shardloom::ops
