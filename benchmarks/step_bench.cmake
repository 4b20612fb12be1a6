add_executable(step_bench ${CMAKE_CURRENT_SOURCE_DIR}/step_bench.cpp)
target_link_libraries(step_bench PRIVATE shardloom_trainer)
_shardloom_common(step_bench TRUE)
target_compile_definitions(step_bench PRIVATE SHARDLOOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
