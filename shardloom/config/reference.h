// The keys of a section as tables of Markdown.
#pragma once

#include <string>

#include "shardloom/config/schema.h"

namespace shardloom::config {

// `defaults` is a struct of the section. Nested sections follow under `heading` ("##"), those in
// them one level below.
std::string section_markdown(const Section& section,
                             const void* defaults,
                             const std::string& heading);

}  // namespace shardloom::config
