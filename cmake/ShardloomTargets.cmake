# shardloom_library(room SRCS ... DEPS ... [LIBS ...] [TORCH])   static library shardloom_<room>;
#                                                                fuzz builds leave out those with TORCH
# shardloom_test(room SRCS ... DEPS ... [LABEL unit] [TORCH])    one gtest binary <room>_test, one ctest entry
# shardloom_benchmark(name SRCS ... DEPS ... [TORCH])            one Google Benchmark binary
add_library(shardloom_flags INTERFACE)
target_compile_options(shardloom_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
# g++ 12 sees overlapping copies in std::string where there are none (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(shardloom_flags INTERFACE -Wno-restrict)
endif()
if(SHARDLOOM_WERROR)
  target_compile_options(shardloom_flags INTERFACE -Werror)
endif()
if(SHARDLOOM_MARCH AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(shardloom_flags INTERFACE -march=${SHARDLOOM_MARCH})
endif()
# No contraction of a*b+c: results must not depend on where the compiler finds a fused multiply-add.
target_compile_options(shardloom_flags INTERFACE -ffp-contract=off)
# Nobody reads errno or the exception flags of the processor, and either would keep square roots from vectorising.
target_compile_options(shardloom_flags INTERFACE -fno-math-errno -fno-trapping-math)
if(SHARDLOOM_SANITIZE)
  target_compile_options(shardloom_flags INTERFACE
    -fsanitize=${SHARDLOOM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(shardloom_flags INTERFACE -fsanitize=${SHARDLOOM_SANITIZE})
endif()
target_include_directories(shardloom_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(shardloom_flags INTERFACE shardloom_fmt Threads::Threads)

# Executables compile as libraries do (-fPIC), or they could not share the precompiled header.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})

# The one precompiled header, shared by every .cpp that sees torch.
add_library(shardloom_pch OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
target_link_libraries(shardloom_pch PUBLIC shardloom_flags shardloom_torch)
target_precompile_headers(shardloom_pch PUBLIC ${CMAKE_SOURCE_DIR}/cmake/pch.h)

function(_shardloom_common target use_torch)
  if(${use_torch})
    target_link_libraries(${target} PUBLIC shardloom_flags shardloom_torch)
    target_precompile_headers(${target} REUSE_FROM shardloom_pch)
  else()
    target_link_libraries(${target} PUBLIC shardloom_flags)
  endif()
endfunction()

function(shardloom_library room)
  cmake_parse_arguments(ARG "TORCH" "" "SRCS;DEPS;LIBS" ${ARGN})
  if(SHARDLOOM_FUZZ AND ARG_TORCH)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY SHARDLOOM_ROOMS shardloom_${room})
  add_library(shardloom_${room} STATIC ${ARG_SRCS})
  _shardloom_common(shardloom_${room} ${ARG_TORCH})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(shardloom_${room} PUBLIC shardloom_${dep})
  endforeach()
  target_link_libraries(shardloom_${room} PUBLIC ${ARG_LIBS})
endfunction()

function(shardloom_test room)
  cmake_parse_arguments(ARG "TORCH" "LABEL" "SRCS;DEPS;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  add_executable(${room}_test ${ARG_SRCS})
  _shardloom_common(${room}_test ${ARG_TORCH})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${room}_test PRIVATE shardloom_${dep})
  endforeach()
  target_link_libraries(${room}_test PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${room}_test PRIVATE
    SHARDLOOM_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" SHARDLOOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    SHARDLOOM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_test(NAME ${ARG_LABEL}.${room} COMMAND ${room}_test --gtest_brief=1 WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  set_tests_properties(${ARG_LABEL}.${room} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 900)
endfunction()

function(shardloom_benchmark name)
  cmake_parse_arguments(ARG "TORCH" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  _shardloom_common(${name} ${ARG_TORCH})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE shardloom_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE benchmark::benchmark)
  target_compile_definitions(${name} PRIVATE SHARDLOOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endfunction()
