shardloom_benchmark(expert_bench SRCS expert_bench.cpp DEPS ops TORCH)
add_test(NAME unit.expert_bench COMMAND expert_bench 1 16)
set_tests_properties(unit.expert_bench PROPERTIES LABELS unit TIMEOUT 300 PASS_REGULAR_EXPRESSION "index_select.*grouped_mm.*fused")
