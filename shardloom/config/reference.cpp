#include "shardloom/config/reference.h"

#include <fmt/format.h>

#include "shardloom/base/strings.h"
#include "shardloom/config/load.h"
#include "shardloom/config/not_built.h"

namespace shardloom::config {
namespace {

constexpr const char* kIntroduction = R"(# Configuration reference

Generated from the schema by `shardloom check --reference > docs/config.md`; do not edit.

A run is one YAML file with the sections below, plus overrides `section.key=value` on the command line. Priority: override,
file, default. `shardloom check CONFIG --explain` shows each resolved value and where it comes from.

Rules of the file, stricter than YAML:

- Unknown keys, duplicate keys and values of a wrong type are errors; all of them are reported at once with line and column.
- Booleans are `true` and `false`. `yes`, `no`, `on` and `off` are errors.
- `1e-5` and `2e3` are numbers. A whole number may be written `2e3` or `2000.0` if it is exactly whole; `042`, `0x10` and
  `1_000` are errors; so are `.nan` and `.inf`.
- Text that reads as a number or a boolean must be quoted; quoted numbers and booleans are text, so they are errors where a
  number or a boolean is expected.
- One document, UTF-8 (a byte order mark and CRLF are accepted), no tabs in indentation, no tags.
- Anchors, aliases and `<<` work; explicit keys win over merged ones. A top-level block named `x-...` may hold anchors and is
  otherwise ignored.
- A module pattern that starts with a brace, or stands in a `[...]` list and holds one, must be quoted.
- The file is a regular file of at most 1 MiB, not a pipe: every rank reads it.
- Paths are relative to the working folder and taken literally: `$NAME` and `~` are not expanded.

Module patterns are whole dotted module names; `{*}` stands for any index, `{a-b}` for a range with both ends, `{1,3,5}` for a
list. A pattern of an active plan that matches nothing is an error.

Overrides take values in the same types; lists are `[x, y]`, patterns need no quotes in them
(`"model.freeze=[vision_model, language_model.model.layers.{0-3}]"`). Of `train_iters` and `train_epochs`, and of
`lr_warmup_ratio` and `lr_warmup_iters`, an override of one takes the place of the other in the file.

Status: empty = supported; *no effect* = accepted so that existing files load, nothing here depends on it; *not supported yet* =
refused unless it has one of the values given; *unused* = an older key, refused when it is set.
)";

std::string escaped(std::string text) {
  size_t position = 0;
  while ((position = text.find('|', position)) != std::string::npos) {
    text.replace(position, 1, "\\|");
    position += 2;
  }
  return text;
}

std::string status_of(const std::string& path, const Field& field) {
  for (const NotBuilt& key : not_built_keys()) {
    if (key.path != path) continue;
    return fmt::format("{}, only {}{}",
                       field.effect == Effect::kUnused ? "unused" : "not supported yet",
                       join(key.inactive, " or "), key.remedy.empty() ? "" : "; " + key.remedy);
  }
  if (field.effect == Effect::kUnused) return "unused";
  return field.effect == Effect::kNone ? "no effect" : "";
}

std::string default_of(const Field& field, const void* defaults) {
  if (field.codec->required()) return "required";
  return fmt::format("`{}`", field.codec->dump(field.get(defaults)));
}

void write_section(const Section& section,
                   const void* defaults,
                   const std::string& path,
                   const std::string& meaning,
                   const std::string& heading,
                   std::string& out) {
  std::string rows;
  std::string nested_sections;
  for (const Field& field : section.fields()) {
    const std::string field_path = join_path(path, field.name);
    const void* nested = field.codec->section_target(field.get(defaults));
    if (nested != nullptr && field.effect != Effect::kUnused) {
      write_section(*field.codec->section(), nested, field_path, field.meaning, heading,
                    nested_sections);
    } else {
      rows +=
          fmt::format("| {} | {} | {} | {} | {} |\n", field.name, escaped(field.codec->type_name()),
                      nested != nullptr ? "" : escaped(default_of(field, defaults)),
                      escaped(field.meaning), escaped(status_of(field_path, field)));
    }
  }
  if (!path.empty()) {
    const bool top = path.find('.') == std::string::npos;
    out += fmt::format("\n{}{} {}\n\n{}\n", heading, top ? "" : "#", path, meaning);
  }
  if (!rows.empty())
    out += "\n| key | type | default | meaning | status |\n|---|---|---|---|---|\n" + rows;
  out += nested_sections;
}

}  // namespace

std::string section_markdown(const Section& section,
                             const void* defaults,
                             const std::string& heading) {
  std::string out;
  write_section(section, defaults, "", "", heading, out);
  return out;
}

// docs/config.md, written from the schema.
std::string reference_markdown() {
  const TrainConfig defaults;
  return kIntroduction + section_markdown(train_config_section(), &defaults, "##");
}

}  // namespace shardloom::config
