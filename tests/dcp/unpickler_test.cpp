// The restricted unpickler: what it reads, and that nothing else gets through.
#include "shardloom/checkpoint/dcp/unpickler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardloom/checkpoint/dcp/pickle_writer.h"
#include "shardloom/checkpoint/dcp/python_value.h"
#include "tests/dcp/samples.h"

namespace shardloom::checkpoint::dcp {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const std::string& pickle) {
  return python_text(to_python_value(unpickle(pickle, "test").root(), "test"));
}

std::string unpickle_error(const std::string& pickle, const PickleLimits& limits = {}) {
  return error_of([&] { unpickle(pickle, "x.pkl", limits); });
}

// Made with Python 3.11: pickle.dumps(value, protocol).
TEST(Unpickler, ProtocolsTwoToFive) {
  EXPECT_EQ(text_of("\x80\x02}q\x00(X\x01\x00\x00\x00"
                    "aq\x01K\x01X\x01\x00\x00\x00"
                    "bq\x02]q\x03(G"
                    "\x3f\xf8\x00\x00\x00\x00\x00\x00\x88N\x8a\x05\x00\x00\x00\x00\x01"
                    "eu."s),
            "{'a': 1, 'b': [1.5, True, None, 4294967296]}");
  EXPECT_EQ(text_of("\x80\x03"
                    "C\x03\x00\xff\x41q\x00."s),
            "b'\\x00\\xffA'");
  EXPECT_EQ(text_of("\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x01x\x94h\x00\x86\x94\x8c\x01"
                    "y\x86."s),
            "(('x', 'x'), 'y')");
  EXPECT_EQ(text_of("\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00J\xff\xff\xff\xff."s), "-1");
}

TEST(Unpickler, IntegersOfEveryWidth) {
  for (const int64_t value :
       {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{65535}, int64_t{65536}, int64_t{-1},
        int64_t{-2147483648}, int64_t{2147483648}, int64_t{INT64_MIN}, int64_t{INT64_MAX}}) {
    PickleWriter writer;
    writer.integer(value);
    EXPECT_EQ(unpickle(std::move(writer).finish(), "test").root().integer(), value);
  }
  EXPECT_EQ(text_of("\x80\x02\x8a\x00."s), "0");
  EXPECT_EQ(text_of("\x80\x02\x8a\x01\xff."s), "-1");
  EXPECT_EQ(text_of("\x80\x02\x8a\x02\xff\x00."s), "255");
  EXPECT_THAT(unpickle_error("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s),
              AllOf(HasSubstr("x.pkl"), HasSubstr("byte 2: LONG1"), HasSubstr("9 bytes")));
}

TEST(Unpickler, SizesDictsAndBytesAreSeenThrough) {
  EXPECT_EQ(text_of("\x80\x02"
                    "ctorch\nSize\n(K\x02K\x03\x86tR."s),
            "(2, 3)");
  EXPECT_EQ(text_of("\x80\x02"
                    "ccollections\nOrderedDict\n)RK\x01K\x02s."s),
            "{1: 2}");
  EXPECT_EQ(text_of("\x80\x02"
                    "c_codecs\nencode\nX\x03\x00\x00\x00"
                    "A\xc3\xbfX\x06\x00\x00\x00latin1"
                    "\x86R."s),
            "b'A\\xff'");
  EXPECT_THAT(unpickle_error("\x80\x02"
                             "c_codecs\nencode\nX\x01\x00\x00\x00"
                             "AX\x05\x00\x00\x00"
                             "rot13\x86R."s),
              HasSubstr("latin1"));
}

TEST(Unpickler, ForeignGlobalsAreNamed) {
  EXPECT_THAT(unpickle_error("\x80\x02"
                             "cos\nsystem\n(X\x02\x00\x00\x00lstR."s),
              AllOf(HasSubstr("x.pkl"), HasSubstr("byte 2: GLOBAL"),
                    HasSubstr("the global os.system is not allowed")));
  EXPECT_THAT(unpickle_error("\x80\x04\x8c\x08"
                             "builtins\x8c\x04"
                             "eval\x93."s),
              AllOf(HasSubstr("byte 18: STACK_GLOBAL"), HasSubstr("builtins.eval")));
  EXPECT_THAT(unpickle_error("\x80\x02"
                             "ctorch\nload\n."s),
              HasSubstr("torch.load"));
}

struct BadPickle {
  const char* name;
  std::string pickle;
  const char* cause;
};

class UnpicklerBad : public ::testing::TestWithParam<BadPickle> {};

TEST_P(UnpicklerBad, IsNamed) {
  EXPECT_THAT(unpickle_error(GetParam().pickle),
              AllOf(HasSubstr("x.pkl"), HasSubstr(GetParam().cause)));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    UnpicklerBad,
    ::testing::Values(
        BadPickle{"empty", "", "the pickle is empty"},
        BadPickle{"protocol_0", "(lp0\n.", "not a pickle of protocol 2 to 5"},
        BadPickle{"protocol_6", "\x80\x06N.", "protocol 6"},
        BadPickle{"zip", "PK\x03\x04", "begins with byte 0x50"},
        BadPickle{"no_stop", "\x80\x02N", "has no end"},
        BadPickle{"stop_without_value", "\x80\x02.", "0 values and 0 marks are left"},
        BadPickle{"two_values", "\x80\x02NN.", "2 values"},
        BadPickle{"open_mark", "\x80\x02(N.", "1 marks"},
        BadPickle{"trailing", "\x80\x02N.N", "1 bytes follow the end"},
        BadPickle{"cut_text", "\x80\x02X\x05\x00\x00\x00"s + "ab.", "needs 5 bytes, 3 are left"},
        BadPickle{"huge_text", "\x80\x02X\xff\xff\xff\xff.", "needs 4294967295 bytes"},
        BadPickle{"utf8", "\x80\x02X\x02\x00\x00\x00"s + "a\xff.",
                  "byte 1 of the text is not UTF-8"},
        BadPickle{"opcode", "\x80\x02i.", "0x69: this opcode is not read here"},
        BadPickle{"memo", "\x80\x02h\x05.", "there is no memo 5"},
        BadPickle{"memo_gap", "\x80\x02Nr\xff\xff\xff\x7f.", "LONG_BINPUT: memo 2147483647 comes"},
        BadPickle{"no_mark", "\x80\x02Nt.", "TUPLE: there is no mark"},
        BadPickle{"below_mark", "\x80\x02N(\x85t.", "TUPLE1: takes 1 values"},
        BadPickle{"odd_items", "\x80\x02}(Nu.", "a key has no value"},
        BadPickle{"append_to_dict", "\x80\x02}Na.", "wants a list, found a dict"},
        BadPickle{"call_a_list", "\x80\x02])R.", "wants a function, found a list"},
        BadPickle{"build_none", "\x80\x02NNb.", "wants an object, found None"},
        BadPickle{"protocol_inside", "\x80\x02\x80\x02N.", "in the middle"},
        BadPickle{"itself", "\x80\x02]q\x00h\x00"s + "a.", "a value contains itself"}),
    [](const auto& info) { return info.param.name; });

TEST(Unpickler, DepthIsLimited) {
  const auto nested = [](size_t depth) {
    return "\x80\x02" + std::string(depth, ']') + std::string(depth - 1, 'a') + ".";
  };
  EXPECT_EQ(unpickle_error(nested(100)), "no error");
  EXPECT_THAT(unpickle_error(nested(101)), HasSubstr("nested more than 100 deep"));
  EXPECT_THAT(unpickle_error(nested(1'000'000)), HasSubstr("nested more than 100 deep"));
}

// 60 deep where it stands first, 120 deep where it is used again.
TEST(Unpickler, SharedValuesCountAtTheirDeepestPlace) {
  const std::string shared = std::string(60, ']') + std::string(59, 'a') + "q" + '\0';
  const std::string again = std::string(60, ']') + "h" + '\0' + std::string(60, 'a');
  EXPECT_EQ(unpickle_error("\x80\x02(" + shared + "t."), "no error");
  EXPECT_THAT(unpickle_error("\x80\x02(" + shared + again + "t."),
              HasSubstr("nested more than 100 deep"));
}

// Each list holds the one before it twice: 60 levels stand for 2^60 values.
TEST(Unpickler, SharedValuesCannotExplode) {
  std::string bomb = "\x80\x02(]q"s + '\0';
  for (char i = 1; i <= 60; ++i) {
    const std::string before = {'h', static_cast<char>(i - 1)};
    bomb += "](" + before + before + "eq" + i;
  }
  bomb += "t.";
  EXPECT_THAT(unpickle_error(bomb), HasSubstr("more than 100000000 values"));
}

TEST(Unpickler, NumberOfValuesAndBytesIsLimited) {
  const std::string ten = "\x80\x02(" + std::string(10, 'N') + "t.";
  EXPECT_EQ(unpickle_error(ten, {.max_nodes = 11}), "no error");
  EXPECT_THAT(unpickle_error(ten, {.max_nodes = 9}), HasSubstr("more than 9 values"));
  EXPECT_THAT(unpickle_error(ten, {.max_bytes = 5}), HasSubstr("over the limit of 5 B"));
}

TEST(PickleWriter, ValuesComeBack) {
  using Value = PythonValue;
  const Value value = Value::Dict{
      {{"none", {}},
       {"flag", true},
       {"wide", int64_t{1} << 40},
       {"float", -2.5},
       {"text", "h\xc3\xa9llo"},
       {"again", "text"},
       {"bytes", Value::Bytes{"\x00\x7f\x80\xff"s}},
       {"list", Value::List{{1, Value::Tuple{{2, "text"}}, Value::List{}, Value::Dict{}}}},
       {3, Value::Tuple{}}}};
  PickleWriter writer;
  writer.value(value);
  const std::string pickle = std::move(writer).finish();
  EXPECT_EQ(to_python_value(unpickle(pickle, "test").root(), "test"), value);
}

TEST(PickleWriter, MemoIndicesBeyondAByte) {
  PickleWriter writer;
  writer.mark();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 300; ++i) writer.text("key " + std::to_string(i));
  }
  writer.tuple();
  const PickleTree tree = unpickle(std::move(writer).finish(), "test");
  ASSERT_EQ(tree.root().children().size(), 600U);
  for (size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(tree.root().children()[i], tree.root().children()[i + 300]);
  }
  EXPECT_EQ(tree.root().children()[599]->text(), "key 299");
}

TEST(PythonValue, OnlyPlainValues) {
  const PickleTree tree = unpickle(
      "\x80\x02"
      "ctorch\nfloat32\n."s,
      "test");
  EXPECT_THAT(
      error_of([&] { to_python_value(tree.root(), "place"); }),
      AllOf(HasSubstr("place: holds the global torch float32"), HasSubstr("no plain value")));
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
