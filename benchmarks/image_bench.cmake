shardloom_benchmark(image_bench SRCS image_bench.cpp DEPS data_image)
