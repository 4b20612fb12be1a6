#include "shardloom/distributed/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace shardloom::distributed {
namespace {

std::optional<std::string> source_address(const addrinfo& target) {
  const int socket = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  std::array<char, NI_MAXHOST> text{};
  const bool found = ::connect(socket, target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                     ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, text.data(),
                                   text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(socket);
  return found ? std::optional<std::string>(text.data()) : std::nullopt;
}

}  // namespace

std::optional<std::string> local_address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (; list != nullptr; list = list->ai_next) {
    if (auto address = source_address(*list)) return address;
  }
  return std::nullopt;
}

}  // namespace shardloom::distributed
