// SIGINT and SIGTERM as a flag that loops poll; a second signal ends the process at once with code
// 130.
#pragma once

namespace shardloom {

void install_interrupt_handlers();
bool interrupt_requested();

}  // namespace shardloom
