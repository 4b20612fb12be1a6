// Declarations of gloo, whose code is inside libtorch_cpu but whose headers are not in the wheel:
// just what ProcessGroupGloo.hpp names. Only pointers to these types pass through our code.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
