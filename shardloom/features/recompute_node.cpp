#include "shardloom/features/recompute_node.h"

#include <torch/csrc/autograd/engine.h>

#include "shardloom/base/error.h"

namespace shardloom::features {

using torch::autograd::Edge;
using torch::autograd::variable_list;

void RecomputeNode::run(const std::string& module,
                        const std::shared_ptr<nn::Call>& call,
                        const std::function<void()>& inner) {
  RepeatableCall repeatable(call, inner);
  torch::autograd::edge_list edges;
  for (const at::Tensor* input : call->inputs()) {
    edges.push_back(input->defined() && input->requires_grad()
                        ? torch::autograd::impl::gradient_edge(*input)
                        : Edge());
  }
  const at::NoGradGuard no_grad;
  inner();
  repeatable.drop_arguments();
  const auto node = std::shared_ptr<RecomputeNode>(new RecomputeNode(module, std::move(repeatable)),
                                                   torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  for (at::Tensor* output : call->outputs()) {
    if (!output->defined() || !at::isFloatingType(output->scalar_type())) continue;
    at::Tensor passed = output->detach();
    torch::autograd::impl::set_gradient_edge(passed, {node, node->add_input_metadata(passed)});
    *output = passed;
  }
}

variable_list RecomputeNode::apply(variable_list&& grads) {
  if (!call_) {
    throw InternalError(
        "recompute: backward went through {} a second time; keep the graph (retain_graph) for that",
        module_);
  }
  if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid()) {
    throw InternalError(
        "recompute: {} is recomputed with use_reentrant, which works in a backward pass of all "
        "leaves only; set recompute_plan.use_reentrant to false",
        module_);
  }
  Repetition repetition(*call_);
  repetition.run();
  variable_list roots, root_grads;
  size_t index = 0;
  for (const at::Tensor* output : repetition.outputs()) {
    if (!output->defined() || !at::isFloatingType(output->scalar_type())) continue;
    at::Tensor& grad = grads.at(index++);
    if (!grad.defined() || !output->requires_grad()) continue;
    roots.push_back(*output);
    root_grads.push_back(std::move(grad));
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_grads);
  variable_list input_grads;
  for (const at::Tensor& input : repetition.inputs())
    input_grads.push_back(input.defined() ? input.grad() : at::Tensor());
  return input_grads;
}

}  // namespace shardloom::features
