#include "shardloom/distributed/gloo_backend.h"

#include <net/if.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/foreign_error.h"
#include "shardloom/distributed/local_address.h"

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

// Gloo writes to its sockets without MSG_NOSIGNAL: a peer that has gone would end this process
// without a word. A handler that is set already stays.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, nullptr);
}

// Empty when the variable is not set.
std::vector<std::string> given_interfaces() {
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");
  if (given == nullptr || *given == '\0') return {};
  return shardloom::split(given, ',');
}

std::shared_ptr<gloo::transport::Device> default_device(c10d::Store& store) {
  using Gloo = c10d::ProcessGroupGloo;
  c10d::Store* below = &store;
  c10::intrusive_ptr<c10d::Store> owner;
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(below)) {
    owner = prefixed->getUnderlyingNonPrefixStore();
    below = owner.get();
  }
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(below)) {
    const auto address = local_address_towards(tcp->getHost(), tcp->getPort());
    if (address) return Gloo::createDeviceForHostname(*address);
  }
  return Gloo::createDefaultDevice();
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank,
                                                    const std::vector<int>& world_ranks,
                                                    const std::string& group_name,
                                                    std::chrono::milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(timeout);
  ignore_broken_pipes();
  const std::vector<std::string> names = given_interfaces();
  for (const std::string& name : names) require_interface(name);
  try {
    for (const std::string& name : names) {
      options->devices.push_back(Gloo::createDeviceForInterface(name));
    }
    if (names.empty()) options->devices.push_back(default_device(*store));
    return c10::make_intrusive<Gloo>(store, rank, static_cast<int>(world_ranks.size()), options);
  } catch (const std::exception& error) {
    throw DistributedError("rank {}, group {}, set-up: gloo cannot connect the {} ranks: {}",
                           world_ranks[rank], group_name, world_ranks.size(),
                           short_text(error.what()));
  }
}

}  // namespace shardloom::distributed
