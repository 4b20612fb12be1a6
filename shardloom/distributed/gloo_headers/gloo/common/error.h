// Declarations of gloo, whose code is inside libtorch_cpu but whose headers are not in the wheel:
// just what ProcessGroupGloo.hpp names. Only pointers to these types pass through our code.
#pragma once
