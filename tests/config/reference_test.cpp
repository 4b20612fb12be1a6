#include <fstream>
#include <sstream>

#include "shardloom/base/files.h"
#include "shardloom/config/not_built.h"
#include "shardloom/config/suggest.h"
#include "tests/config/config_test_util.h"

namespace shardloom::config {
namespace {

using ::testing::HasSubstr;

TEST(Reference, DocsAreUpToDate) {
  EXPECT_EQ(read_file(std::string(SHARDLOOM_SOURCE_DIR) + "/docs/config.md"), reference_markdown())
      << "run: shardloom check --reference > docs/config.md";
}

TEST(Reference, HasAMeaningForEveryKey) {
  const std::string text = reference_markdown();
  for (const KnownKey& key : known_keys()) {
    EXPECT_FALSE(key.field->meaning.empty()) << key.path;
    EXPECT_THAT(text, HasSubstr(key.field->name)) << key.path;
  }
  EXPECT_THAT(text, HasSubstr("| lr | number >= 0 | `5e-05` | Peak learning rate. |  |"));
  EXPECT_THAT(text,
              HasSubstr("| load_rank0_and_broadcast | true or false | `false` | Rank 0 reads, "
                        "the others receive. | not supported yet, only false |"));
}

// Every refused key is in the schema, and its default asks for nothing.
TEST(Reference, DefaultsAreBuilt) {
  EXPECT_EQ(error_of([] { parse_train_config(minimal(), "run.yaml"); }), "");
  EXPECT_GT(not_built_keys().size(), 0u);
}

}  // namespace
}  // namespace shardloom::config
