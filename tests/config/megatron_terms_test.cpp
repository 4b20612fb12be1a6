// Messages of the shared rooms in the words of the Megatron-style path.
#include "shardloom/config/megatron/terms.h"

#include "shardloom/config/megatron/flags.h"
#include "tests/config/megatron_test_util.h"

namespace shardloom::config::megatron {
namespace {

// Of a run with `flags`, without the folder of its files.
std::string told(const std::string& message, const Flags& flags = {}) {
  std::string text = in_own_terms(message, WrittenFiles{}.load(flags));
  const std::string prefix = WrittenFiles::folder().string() + "/";
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
    text.erase(at, prefix.size());
  return text;
}

TEST(MegatronTerms, KeysBecomeFlagsAndKeysOfTheFiles) {
  EXPECT_EQ(told("raise data.dataset_param.basic_parameters.cutoff_len or lower "
                 "data.dataset_param.max_dynamic_patch"),
            "raise --seq-length or lower dataset_param.max_dynamic_patch");
  EXPECT_EQ(told("token 32, but cutoff_len is 8"), "token 32, but --seq-length is 8");
  EXPECT_EQ(told("needs parallel.ep_plan.apply_modules."), "needs moe_modules.");
  EXPECT_EQ(told("parallel.fsdp_plan.apply_modules[2] is empty"),
            "sub_modules_to_wrap[2] is empty");
  EXPECT_EQ(told("(pictures are looked for below basic_parameters.dataset_dir)"),
            "(pictures are looked for below data_folder)");
}

TEST(MegatronTerms, RemediesAreWrittenAsFlags) {
  EXPECT_EQ(told("Lower training.lr, look at the samples, or set training.on_nan: skip",
                 {"--clip-grad", "1"}),
            "Lower --lr, look at the samples, or set --on-nan skip");
  EXPECT_EQ(told("training.no_load_optim: true starts with a fresh optimizer"),
            "--no-load-optim starts with a fresh optimizer");
  EXPECT_EQ(told("a tensor is missing\n  training.load_strict: false loads what fits."),
            "a tensor is missing\n  --no-load-strict loads what fits.");
  EXPECT_EQ(told("To go on from the latest: training.load=out/run"),
            "To go on from the latest: --load=out/run");
}

TEST(MegatronTerms, ALineBeginsWithItsPlace) {
  const Flags save = {"--save", "/proc/x", "--load", "no/such"};
  EXPECT_EQ(told("training.save: cannot write to /proc/x", save),
            "--save /proc/x: cannot write to /proc/x");
  EXPECT_EQ(told("--load no/such: training.load: the folder /no/such does not exist", save),
            "--load no/such: the folder /no/such does not exist");
  EXPECT_EQ(told("model.model_name_or_path: no model\nparallel.fully_shard_parallel_size is 3"),
            "model.json:1:47: init_from_hf_path: no model\n"
            "fsdp2.yaml:1:16: sharding_size is 3");
}

TEST(MegatronTerms, OtherTextStays) {
  for (const char* text :
       {"cannot open out/training.save/x: No such file", "unknown key training.saves",
        "language_model.model.layers.0 has 3 rows...", "", "a\n\nb", "my-cutoff_len"}) {
    EXPECT_EQ(told(text), text);
  }
}

// A message that tells a flag must not need to be told again.
TEST(MegatronTerms, OwnTermsStay) {
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) EXPECT_EQ(told(flag.name()), flag.name());
  }
}

}  // namespace
}  // namespace shardloom::config::megatron
