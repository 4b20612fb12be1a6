#include "shardloom/cli/run.h"

int main(int argc, char** argv) { return shardloom::cli::run(argc, argv); }
