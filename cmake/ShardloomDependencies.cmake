# Finds libtorch (never needs Python at run time) and the Debian libraries.
#   SHARDLOOM_TORCH_DIR   a folder with include/ and lib/ of torch >= 2.11; default .deps/torch, else the python package
set(SHARDLOOM_TORCH_DIR "" CACHE PATH "Folder of torch with include/ and lib/")

if(NOT SHARDLOOM_TORCH_DIR AND DEFINED ENV{SHARDLOOM_TORCH_DIR})
  set(SHARDLOOM_TORCH_DIR "$ENV{SHARDLOOM_TORCH_DIR}")
endif()
if(NOT SHARDLOOM_TORCH_DIR AND EXISTS ${CMAKE_SOURCE_DIR}/.deps/torch/lib/libtorch_cpu.so)
  set(SHARDLOOM_TORCH_DIR ${CMAKE_SOURCE_DIR}/.deps/torch)
endif()
if(NOT SHARDLOOM_TORCH_DIR)
  execute_process(COMMAND python3 -c "import os, torch; print(os.path.dirname(torch.__file__))"
                  OUTPUT_VARIABLE _torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(SHARDLOOM_TORCH_DIR "${_torch_dir}")
endif()
if(NOT EXISTS ${SHARDLOOM_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "libtorch not found (looked in '${SHARDLOOM_TORCH_DIR}'). Run scripts/setup.sh, or set SHARDLOOM_TORCH_DIR.")
endif()
file(STRINGS ${SHARDLOOM_TORCH_DIR}/include/torch/headeronly/version.h _version_lines REGEX "TORCH_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" SHARDLOOM_TORCH_VERSION "${_version_lines}")
if(SHARDLOOM_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${SHARDLOOM_TORCH_VERSION} in ${SHARDLOOM_TORCH_DIR} is too old; 2.11 or newer is needed.")
endif()
message(STATUS "torch ${SHARDLOOM_TORCH_VERSION} in ${SHARDLOOM_TORCH_DIR}")

# The CUDA run time that libtorch_cpu is linked against: wheels beside torch (where its own RPATH looks, as scripts/setup.sh
# lays them), or an installed toolkit.
set(_cuda_runtime_dirs ${SHARDLOOM_TORCH_DIR}/../nvidia/cu13/lib /usr/local/cuda/lib64)
set(SHARDLOOM_RPATH ${SHARDLOOM_TORCH_DIR}/lib)
foreach(dir IN LISTS _cuda_runtime_dirs)
  if(EXISTS ${dir})
    list(APPEND SHARDLOOM_RPATH ${dir})
  endif()
endforeach()

add_library(shardloom_torch INTERFACE)
target_include_directories(shardloom_torch SYSTEM INTERFACE
  ${SHARDLOOM_TORCH_DIR}/include ${SHARDLOOM_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(shardloom_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
target_link_directories(shardloom_torch INTERFACE ${SHARDLOOM_TORCH_DIR}/lib)
target_link_libraries(shardloom_torch INTERFACE torch_cpu c10)
# at::parallel_for is a pragma in ATen's headers: without OpenMP it runs in one thread. The run time is the one that libtorch loads
# (the same soname). ThreadSanitizer cannot see into it.
if(NOT "${SHARDLOOM_SANITIZE}" MATCHES "thread")
  target_compile_options(shardloom_torch INTERFACE -fopenmp)
  target_link_options(shardloom_torch INTERFACE -fopenmp)
endif()
# -rpath-link lets the linker resolve libcudart/libcupti, which libtorch_cpu needs.
foreach(dir IN LISTS SHARDLOOM_RPATH)
  target_link_options(shardloom_torch INTERFACE "LINKER:-rpath-link,${dir}")
endforeach()
set(CMAKE_BUILD_RPATH ${SHARDLOOM_RPATH})
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib" ${SHARDLOOM_RPATH})

# One fmt for all rooms: the wheel's 12.1, seen through a folder of its own, so that torch's other bundled headers
# (protobuf) stay out of the torch-free rooms. base compiles it once (base/fmt_impl.cpp).
set(_fmt_dir ${CMAKE_BINARY_DIR}/fmt_include)
file(MAKE_DIRECTORY ${_fmt_dir})
file(CREATE_LINK ${SHARDLOOM_TORCH_DIR}/include/fmt ${_fmt_dir}/fmt SYMBOLIC)
add_library(shardloom_fmt INTERFACE)
target_include_directories(shardloom_fmt SYSTEM INTERFACE ${_fmt_dir})

find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(NETTLE REQUIRED IMPORTED_TARGET nettle)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)
find_path(PROTOZERO_INCLUDE_DIR protozero/pbf_writer.hpp REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
endif()
