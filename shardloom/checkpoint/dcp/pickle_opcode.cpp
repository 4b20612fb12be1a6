#include "shardloom/checkpoint/dcp/pickle_opcode.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace shardloom::checkpoint::dcp {

std::string opcode_name(Opcode opcode) {
  using Row = std::pair<Opcode, std::string_view>;
  static constexpr std::array kRows = {
      Row{Opcode::kMark, "MARK"},
      Row{Opcode::kStop, "STOP"},
      Row{Opcode::kBinFloat, "BINFLOAT"},
      Row{Opcode::kBinInt, "BININT"},
      Row{Opcode::kBinInt1, "BININT1"},
      Row{Opcode::kBinInt2, "BININT2"},
      Row{Opcode::kNone, "NONE"},
      Row{Opcode::kBinPersId, "BINPERSID"},
      Row{Opcode::kReduce, "REDUCE"},
      Row{Opcode::kBinUnicode, "BINUNICODE"},
      Row{Opcode::kBinBytes, "BINBYTES"},
      Row{Opcode::kShortBinBytes, "SHORT_BINBYTES"},
      Row{Opcode::kEmptyList, "EMPTY_LIST"},
      Row{Opcode::kAppend, "APPEND"},
      Row{Opcode::kBuild, "BUILD"},
      Row{Opcode::kGlobal, "GLOBAL"},
      Row{Opcode::kAppends, "APPENDS"},
      Row{Opcode::kBinGet, "BINGET"},
      Row{Opcode::kLongBinGet, "LONG_BINGET"},
      Row{Opcode::kBinPut, "BINPUT"},
      Row{Opcode::kLongBinPut, "LONG_BINPUT"},
      Row{Opcode::kSetItem, "SETITEM"},
      Row{Opcode::kTuple, "TUPLE"},
      Row{Opcode::kEmptyTuple, "EMPTY_TUPLE"},
      Row{Opcode::kSetItems, "SETITEMS"},
      Row{Opcode::kEmptyDict, "EMPTY_DICT"},
      Row{Opcode::kProto, "PROTO"},
      Row{Opcode::kNewObj, "NEWOBJ"},
      Row{Opcode::kTuple1, "TUPLE1"},
      Row{Opcode::kTuple2, "TUPLE2"},
      Row{Opcode::kTuple3, "TUPLE3"},
      Row{Opcode::kNewTrue, "NEWTRUE"},
      Row{Opcode::kNewFalse, "NEWFALSE"},
      Row{Opcode::kLong1, "LONG1"},
      Row{Opcode::kShortBinUnicode, "SHORT_BINUNICODE"},
      Row{Opcode::kBinUnicode8, "BINUNICODE8"},
      Row{Opcode::kBinBytes8, "BINBYTES8"},
      Row{Opcode::kStackGlobal, "STACK_GLOBAL"},
      Row{Opcode::kMemoize, "MEMOIZE"},
      Row{Opcode::kFrame, "FRAME"},
  };
  for (const auto& [value, name] : kRows) {
    if (value == opcode) return std::string(name);
  }
  return fmt::format("0x{:02x}", static_cast<unsigned>(opcode));
}

}  // namespace shardloom::checkpoint::dcp
