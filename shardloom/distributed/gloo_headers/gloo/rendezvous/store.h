// Declarations of gloo, whose code is inside libtorch_cpu but whose headers are not in the wheel:
// just what ProcessGroupGloo.hpp names. Only pointers to these types pass through our code.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

// The real class has more virtual functions after these: never make, derive or call one.
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace gloo::rendezvous
