#pragma once

#include <string>

namespace YAML {
class Node;
}

/// A file of keys, before anybody looks at the keys. Errors are kBadInput and one line; `name` stands for the file.
namespace specdec {

/// Throws for a NUL byte and for what is not UTF-8.
void require_yaml_text(const std::string& yaml, const std::string& name);

/// The map that `yaml`, one document, holds.
YAML::Node read_yaml_map(const std::string& yaml, const std::string& name);

}  // namespace specdec
