#include "shardloom/ops/cpu/causal_attention.h"

#include "shardloom/ops/cpu/gemm.h"
#include "shardloom/ops/cpu/rows.h"

namespace shardloom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kTileKeys = 512;
// Positions in a block: fewer where several heads make rows of each.
int64_t block_positions(int64_t group) { return group > 2 ? 32 : 64; }
static_assert(kTileKeys % 64 == 0, "a tile begins at or before the first row of any block");

struct Shape {
  int64_t B, T, heads, kv_heads, group, d;
  float scale;
};

// A tensor [B, T, heads, d] with dense last dim.
template <typename Float>
struct HeadView {
  // The stride of a dim of one may be anything.
  HeadView(const at::Tensor& x, Float* base)
      : data(base),
        batch(x.stride(0)),
        position(x.size(1) == 1 ? x.size(3) : x.stride(1)),
        head(x.stride(2)) {}
  Float* row(int64_t b, int64_t t, int64_t h) const {
    return data + b * batch + t * position + h * head;
  }
  Float* data;
  int64_t batch, position, head;
};

HeadView<const float> read(const at::Tensor& x) { return {x, x.const_data_ptr<float>()}; }
HeadView<float> write(const at::Tensor& x) { return {x, x.mutable_data_ptr<float>()}; }

// Readable by BLAS in place, or a copy that is.
at::Tensor with_dense_rows(const at::Tensor& x) {
  return x.stride(3) == 1 && x.stride(1) >= x.size(3) ? x : x.contiguous();
}

// The rows of one (sample, key/value head): those of its group of heads for the positions of a
// block, head by head.
struct Block {
  int64_t b, kv, first, positions, rows;
};

// body(r, position, head) for each row of the block.
template <typename Body>
void for_each_row(const Shape& s, const Block& block, const Body& body) {
  for (int64_t r = 0; r < block.rows; ++r)
    body(r, block.first + r % block.positions, block.kv * s.group + r / block.positions);
}

void pack(const Shape& s, const Block& block, const HeadView<const float>& from, float* to) {
  for_each_row(s, block, [&](int64_t r, int64_t t, int64_t h) {
    std::copy_n(from.row(block.b, t, h), s.d, to + r * s.d);
  });
}

// body(block, scratch) for the blocks of each (sample, key/value head), those in parallel.
template <typename Body>
void for_each_block(const Shape& s, int64_t scratch_floats, const Body& body) {
  const int64_t step = block_positions(s.group);
  at::parallel_for(0, s.B * s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    const at::Tensor memory = at::empty({scratch_floats}, at::kFloat);
    for (int64_t item = begin; item < end; ++item) {
      for (int64_t first = 0; first < s.T; first += step) {
        const int64_t positions = std::min(step, s.T - first);
        body(Block{item / s.kv_heads, item % s.kv_heads, first, positions, s.group * positions},
             memory.mutable_data_ptr<float>());
      }
    }
  });
}

// Longer than its content, so that rows do not share few sets of the cache.
int64_t score_stride(const Shape& s) { return std::min(kTileKeys, s.T) + 16; }
int64_t block_rows(const Shape& s) { return s.group * std::min(s.T, block_positions(s.group)); }

class Forward {
 public:
  Forward(const Shape& s,
          const at::Tensor& q,
          const at::Tensor& k,
          const at::Tensor& v,
          const at::Tensor& out,
          const at::Tensor& log_sum)
      : s_(s),
        q_(read(q)),
        k_(read(k)),
        v_(read(v)),
        out_(write(out)),
        log_sum_(log_sum.mutable_data_ptr<float>()) {}

  void run() {
    const int64_t R = block_rows(s_);
    for_each_block(s_, R * (2 * s_.d + score_stride(s_) + 2),
                   [&](const Block& block, float* scratch) {
                     float* q = scratch;
                     float* out = q + R * s_.d;
                     float* highest = out + R * s_.d;
                     float* sum = highest + R;
                     run_block(block, q, out, highest, sum, sum + R);
                   });
  }

 private:
  void run_block(
      const Block& block, float* q, float* out, float* highest, float* sum, float* scores) const {
    pack(s_, block, q_, q);
    std::fill_n(highest, block.rows, -INFINITY);
    std::fill_n(sum, block.rows, 0.0f);
    const int64_t end = block.first + block.positions, stride = score_stride(s_);
    for (int64_t tile = 0; tile < end; tile += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, end - tile);
      gemm(block.rows, keys, s_.d, s_.scale, {q, s_.d},
           {k_.row(block.b, tile, block.kv), k_.position, true}, 0, scores, stride);
      for_each_row(s_, block, [&](int64_t r, int64_t t, int64_t) {
        float* row = scores + r * stride;
        const int64_t seen = std::min(keys, t + 1 - tile);
        const float new_highest = max_of_row(row, seen, highest[r]);
        const float kept = std::exp(highest[r] - new_highest);
        sum[r] = sum[r] * kept + exp_row(row, seen, new_highest);
        std::fill(row + seen, row + keys, 0.0f);
        highest[r] = new_highest;
        if (tile > 0) {
          for (int64_t i = 0; i < s_.d; ++i) out[r * s_.d + i] *= kept;
        }
      });
      gemm(block.rows, s_.d, keys, 1, {scores, stride},
           {v_.row(block.b, tile, block.kv), v_.position}, tile > 0 ? 1 : 0, out, s_.d);
    }
    for_each_row(s_, block, [&](int64_t r, int64_t t, int64_t h) {
      const float inverse = 1.0f / sum[r];
      float* to = out_.row(block.b, t, h);
      for (int64_t i = 0; i < s_.d; ++i) to[i] = out[r * s_.d + i] * inverse;
      log_sum_[(block.b * s_.T + t) * s_.heads + h] = highest[r] + std::log(sum[r]);
    });
  }

  const Shape& s_;
  HeadView<const float> q_, k_, v_;
  HeadView<float> out_;
  float* log_sum_;
};

struct Gradients {
  at::Tensor q, k, v;  // k and v hold zeros at first
};

class Backward {
 public:
  Backward(const Shape& s, const variable_list& saved, const at::Tensor& grad, const Gradients& g)
      : s_(s),
        q_(read(saved[0])),
        k_(read(saved[1])),
        v_(read(saved[2])),
        out_(read(saved[3])),
        grad_(read(grad)),
        log_sum_(saved[4].const_data_ptr<float>()),
        grad_q_(write(g.q)),
        grad_k_(write(g.k)),
        grad_v_(write(g.v)) {}

  void run() {
    const int64_t R = block_rows(s_);
    for_each_block(s_, R * (3 * s_.d + 2 * score_stride(s_) + 2),
                   [&](const Block& block, float* scratch) {
                     Pieces p{};
                     p.q = scratch;
                     p.grad = p.q + R * s_.d;
                     p.grad_q = p.grad + R * s_.d;
                     p.log_sum = p.grad_q + R * s_.d;
                     p.mean_grad = p.log_sum + R;
                     p.probabilities = p.mean_grad + R;
                     p.grad_scores = p.probabilities + R * score_stride(s_);
                     run_block(block, p);
                   });
  }

 private:
  // mean_grad: <grad, out>, the mean of the gradient of a row's probabilities.
  struct Pieces {
    float *q, *grad, *grad_q, *log_sum, *mean_grad, *probabilities, *grad_scores;
  };

  void run_block(const Block& block, const Pieces& p) const {
    pack(s_, block, q_, p.q);
    pack(s_, block, grad_, p.grad);
    for_each_row(s_, block, [&](int64_t r, int64_t t, int64_t h) {
      p.log_sum[r] = log_sum_[(block.b * s_.T + t) * s_.heads + h];
      p.mean_grad[r] = dot_of_rows(p.grad + r * s_.d, out_.row(block.b, t, h), s_.d);
    });
    const int64_t end = block.first + block.positions;
    for (int64_t tile = 0; tile < end; tile += kTileKeys)
      run_tile(block, p, tile, std::min(kTileKeys, end - tile));
    for_each_row(s_, block, [&](int64_t r, int64_t t, int64_t h) {
      std::copy_n(p.grad_q + r * s_.d, s_.d, grad_q_.row(block.b, t, h));
    });
  }

  void run_tile(const Block& block, const Pieces& p, int64_t tile, int64_t keys) const {
    const int64_t R = block.rows, d = s_.d, stride = score_stride(s_);
    const Matrix k{k_.row(block.b, tile, block.kv), k_.position};
    const Matrix v{v_.row(block.b, tile, block.kv), v_.position};
    gemm(R, keys, d, s_.scale, {p.q, d}, {k.data, k.stride, true}, 0, p.probabilities, stride);
    gemm(R, keys, d, 1, {p.grad, d}, {v.data, v.stride, true}, 0, p.grad_scores, stride);
    for_each_row(s_, block, [&](int64_t r, int64_t t, int64_t) {
      float* probability = p.probabilities + r * stride;
      float* grad = p.grad_scores + r * stride;
      const int64_t seen = std::min(keys, t + 1 - tile);
      const float log_sum = p.log_sum[r], mean = p.mean_grad[r];
      for (int64_t j = 0; j < seen; ++j) {
        probability[j] = fast_exp(probability[j] - log_sum);
        grad[j] = probability[j] * (grad[j] - mean);
      }
      std::fill(probability + seen, probability + keys, 0.0f);
      std::fill(grad + seen, grad + keys, 0.0f);
    });
    gemm(keys, d, R, 1, {p.probabilities, stride, true}, {p.grad, d}, 1,
         grad_v_.row(block.b, tile, block.kv), grad_v_.position);
    gemm(keys, d, R, s_.scale, {p.grad_scores, stride, true}, {p.q, d}, 1,
         grad_k_.row(block.b, tile, block.kv), grad_k_.position);
    gemm(R, d, keys, s_.scale, {p.grad_scores, stride}, k, tile > 0 ? 1 : 0, p.grad_q, d);
  }

  const Shape& s_;
  HeadView<const float> q_, k_, v_, out_, grad_;
  const float* log_sum_;
  HeadView<float> grad_q_, grad_k_, grad_v_;
};

Shape shape_of(const at::Tensor& q, const at::Tensor& k) {
  Shape s{};
  s.B = q.size(0);
  s.T = q.size(1);
  s.heads = q.size(2);
  s.d = q.size(3);
  s.kv_heads = k.size(2);
  s.group = s.heads / s.kv_heads;
  s.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.d)));
  return s;
}

class CausalAttention : public Function<CausalAttention> {
 public:
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& q_any,
                            const at::Tensor& k_any,
                            const at::Tensor& v_any) {
    const at::Tensor q = with_dense_rows(q_any), k = with_dense_rows(k_any),
                     v = with_dense_rows(v_any);
    const Shape s = shape_of(q, k);
    at::Tensor out = at::empty({s.B, s.T, s.heads, s.d}, q.options());
    const at::Tensor log_sum = at::empty({s.B, s.T, s.heads}, q.options());
    Forward(s, q, k, v, out, log_sum).run();
    ctx->save_for_backward({q, k, v, out, log_sum});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Shape s = shape_of(saved[0], saved[1]);
    const Gradients g{at::empty(saved[0].sizes(), saved[0].options()),
                      at::zeros(saved[1].sizes(), saved[1].options()),
                      at::zeros(saved[2].sizes(), saved[2].options())};
    const at::Tensor grad = with_dense_rows(grads[0]);
    Backward(s, saved, grad, g).run();
    return {g.q, g.k, g.v};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return CausalAttention::apply(q, k, v);
}

}  // namespace shardloom::ops
