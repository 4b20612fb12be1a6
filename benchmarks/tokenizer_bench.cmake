shardloom_benchmark(tokenizer_bench SRCS tokenizer_bench.cpp DEPS tokenizer)
