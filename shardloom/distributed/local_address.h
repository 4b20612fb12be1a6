// The address of this host that others can use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shardloom::distributed {

// The address from which this host would send to host:port; nothing is sent. None when the host
// has no address or there is no way to it.
std::optional<std::string> local_address_towards(const std::string& host, uint16_t port);

}  // namespace shardloom::distributed
