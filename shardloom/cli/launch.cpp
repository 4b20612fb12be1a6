#include <algorithm>
#include <memory>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/cli/command.h"
#include "shardloom/distributed/launcher.h"

namespace shardloom::cli {
namespace {

// A slip of the user's would otherwise be told by every rank.
void check_command(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() != "launch") names.push_back(command->get_name());
  }
  if (contains(names, name)) return;
  throw ConfigError("cannot launch \"{}\"{}; after -- stands a command of shardloom, such as train",
                    name, did_you_mean(name, names));
}

}  // namespace

void add_launch_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<distributed::LaunchOptions>();
  CLI::App* command =
      app.add_subcommand("launch", "Run a command as the processes of one run, on several hosts");
  command->add_option("--nproc-per-node", options->nproc, "number of processes on each host")
      ->required();
  command->add_option("--nnodes", options->nnodes, "number of hosts")->capture_default_str();
  command->add_option("--node-rank", options->node_rank, "number of this host, from 0")
      ->capture_default_str();
  command->add_option("--master-addr", options->master_addr,
                      "name or address of host 0; needed for several hosts");
  command
      ->add_option("--master-port", options->master_port,
                   "free port on host 0; on one host, a free one is found by itself")
      ->check(CLI::Range(0, 65535));
  command->add_option("command", options->command, "after --: command and arguments")->required();
  command->footer(
      "Example, on the second of two hosts:\n  shardloom launch --nproc-per-node 8 --nnodes 2 "
      "--node-rank 1 --master-addr host0 \\\n    --master-port 29500 -- train train.yaml "
      "training.lr=5e-4");
  command->callback([options, &app, &action] {
    action = [options, &app] {
      check_command(app, options->command.front());
      return distributed::launch_self(*options);
    };
  });
}

}  // namespace shardloom::cli
