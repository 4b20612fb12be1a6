// Numbers of the zip format, shared by reader and writer.
#pragma once

#include <cstdint>

namespace shardloom::checkpoint::dcp {

inline constexpr uint32_t kLocalHeaderMagic = 0x04034b50;
inline constexpr uint32_t kDescriptorMagic = 0x08074b50;
inline constexpr uint32_t kDirectoryMagic = 0x02014b50;
inline constexpr uint32_t kZip64EndMagic = 0x06064b50;
inline constexpr uint32_t kZip64LocatorMagic = 0x07064b50;
inline constexpr uint32_t kEndMagic = 0x06054b50;

// Without names and extra fields.
inline constexpr uint64_t kLocalHeaderBytes = 30;
inline constexpr uint64_t kDirectoryEntryBytes = 46;
inline constexpr uint64_t kZip64EndBytes = 56;
inline constexpr uint64_t kZip64LocatorBytes = 20;
inline constexpr uint64_t kEndBytes = 22;

inline constexpr uint16_t kFlagEncrypted = 0x0001;
inline constexpr uint16_t kFlagDescriptor = 0x0008;  // CRC and sizes follow the data
inline constexpr uint16_t kFlagUtf8 = 0x0800;

inline constexpr uint16_t kZip64Field = 0x0001;
// PyTorch's field of padding: 'F', 'B'.
inline constexpr uint16_t kPaddingField = 0x4246;

// A 32-bit field with this value stands for the one in the zip64 field.
inline constexpr uint32_t kInZip64 = 0xFFFFFFFF;

}  // namespace shardloom::checkpoint::dcp
