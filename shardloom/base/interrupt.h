// SIGINT and SIGTERM as a flag that loops poll; a second signal ends the process at once with code
// 130. The first one is answered with a line on stderr; of several ranks (log::set_rank) only rank
// 0 answers, and only SIGINT, because with SIGTERM the launcher stops ranks whose peer has failed.
#pragma once

namespace shardloom {

// After log::set_rank().
void install_interrupt_handlers();
bool interrupt_requested();

}  // namespace shardloom
