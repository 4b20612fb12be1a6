shardloom_benchmark(loader_bench SRCS loader_bench.cpp DEPS data)
