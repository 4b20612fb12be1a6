#include "shardloom/distributed/gloo_backend.h"

#include <net/if.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::distributed {
namespace {

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  struct if_nameindex* interfaces = ::if_nameindex();
  if (interfaces == nullptr) return names;
  for (auto* entry = interfaces; entry->if_index != 0; ++entry) names.push_back(entry->if_name);
  ::if_freenameindex(interfaces);
  return names;
}

void require_interface(const std::string& name) {
  if (::if_nametoindex(name.c_str()) != 0) return;
  throw ConfigError("GLOO_SOCKET_IFNAME: this host has no network interface '{}'; it has {}", name,
                    shardloom::join(interface_names(), ", "));
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank,
                                                    int size,
                                                    std::chrono::milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(timeout);
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");
  const std::vector<std::string> names =
      given == nullptr ? std::vector<std::string>{} : shardloom::split(given, ',');
  for (const std::string& name : names) require_interface(name);
  try {
    for (const std::string& name : names) {
      options->devices.push_back(Gloo::createDeviceForInterface(name));
    }
    if (names.empty()) options->devices.push_back(Gloo::createDefaultDevice());
    return c10::make_intrusive<Gloo>(store, rank, size, options);
  } catch (const std::exception& error) {
    throw DistributedError("rank {}: gloo cannot connect the {} ranks: {}", rank, size,
                           error.what());
  }
}

}  // namespace shardloom::distributed
