#include "shardloom/distributed/launcher_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/distributed/launcher.h"

namespace shardloom::distributed {
namespace {

constexpr int kMaxPort = 65535;

[[noreturn]] void throw_port_error(const std::string& host, int port, int error) {
  if (error == EADDRINUSE) {
    throw DistributedError(
        "{}:{} is in use on this host (MASTER_ADDR:MASTER_PORT). Choose another --master-port, or, "
        "on one host, leave it out to get a free one",
        host, port);
  }
  throw DistributedError("cannot use {}:{} (MASTER_ADDR:MASTER_PORT): {}", host, port,
                         std::strerror(error));
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// Throws when the host does not resolve; true when all its addresses are this host's own.
bool resolves_to_loopback(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    throw DistributedError(
        "host \"{}\" (MASTER_ADDR) does not resolve: {}. Give the IP address of the host with "
        "node rank 0, or add the name to /etc/hosts",
        host, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (; list != nullptr; list = list->ai_next) {
    if (!is_loopback(*list->ai_addr)) return false;
  }
  return true;
}

// Bound to the port on all addresses of this host; port 0 picks a free one.
UniqueFd reserve_port(const std::string& host, int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (!fd.is_open() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw_port_error(host, port, errno);
  }
  return fd;
}

int port_of(const UniqueFd& fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// An abstract socket name belongs to one process of the network namespace and goes with it.
UniqueFd lock_port(const std::string& host, int port) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("shardloom-master-port-{}", port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!fd.is_open() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    throw_port_error(host, port, errno);
  return fd;
}

void check_settings(const LaunchOptions& options) {
  if (options.master_port < 0 || options.master_port > kMaxPort) {
    throw ConfigError("master port {} is not between 0 and {}", options.master_port, kMaxPort);
  }
  if (options.nnodes == 1) return;
  if (options.master_addr.empty() || options.master_port == 0) {
    throw ConfigError(
        "{} hosts need --master-addr (the host with node rank 0) and --master-port (a free port "
        "there), the same on every host",
        options.nnodes);
  }
}

}  // namespace

MasterAddress find_master_address(const LaunchOptions& options) {
  check_settings(options);
  MasterAddress master;
  master.host = options.master_addr.empty() ? "127.0.0.1" : options.master_addr;
  master.port = options.master_port;
  const bool is_loopback = resolves_to_loopback(master.host);
  if (options.nnodes > 1 && is_loopback) {
    log::warn(
        "MASTER_ADDR \"{}\" resolves to this host's loopback address; other hosts need an address "
        "that they can reach",
        master.host);
  }
  if (options.node_rank == 0) {
    master.reservation = reserve_port(master.host, master.port);
    master.port = port_of(master.reservation);
    master.lock = lock_port(master.host, master.port);
  }
  return master;
}

}  // namespace shardloom::distributed
