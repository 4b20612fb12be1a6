#include "shardloom/base/files.h"
#include "shardloom/config/megatron/flags.h"
#include "shardloom/config/megatron/reference.h"
#include "tests/config/megatron_test_util.h"

namespace shardloom::config::megatron {
namespace {

using ::testing::HasSubstr;

TEST(MegatronReference, DocsAreUpToDate) {
  EXPECT_EQ(read_file(source_path("docs/megatron.md")), reference_markdown())
      << "run: pretrain_transformers --reference > docs/megatron.md";
}

TEST(MegatronReference, HasEachFlagAndKey) {
  const std::string text = reference_markdown();
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) EXPECT_THAT(text, HasSubstr("| " + flag.name() + " |"));
  }
  EXPECT_THAT(text, HasSubstr("| --lr | number >= 0 | required | Peak learning rate. | "
                              "training.lr |"));
  EXPECT_THAT(text, HasSubstr("| sharding_size | \"auto\" or whole number >= 1 and <= 1000000 or "
                              "null | `1` |"));
  EXPECT_THAT(text, HasSubstr("### loss_cfg\n"));
  EXPECT_THAT(text, HasSubstr("| pad_id | whole number or null | `null` | Padding is masked by the "
                              "length of a sample"));
}

// A key of the YAML path that a flag claims to say must exist.
TEST(MegatronReference, YamlKeysOfFlagsExist) {
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) {
      if (flag.yaml_key.empty()) continue;
      const Section* section = &train_config_section();
      for (const std::string& name : split(flag.yaml_key, '.')) {
        ASSERT_NE(section, nullptr) << flag.yaml_key;
        const Field* field = section->find(name);
        ASSERT_NE(field, nullptr) << flag.yaml_key;
        section = field->codec->section();
      }
    }
  }
}

}  // namespace
}  // namespace shardloom::config::megatron
