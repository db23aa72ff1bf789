#include "models/json_object.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "backend/error.h"
#include "models/json_shown.h"
#include "models/text_file.h"

namespace specdec {
namespace {

constexpr std::uint64_t kLargestJson = std::uint64_t{16} << 20;

std::string integer_between(std::int64_t low, std::int64_t high) {
  return fmt::format("an integer from {} to {}", low, high);
}

bool is_integer_between(const nlohmann::json& value, std::int64_t low, std::int64_t high) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return false;
  }
  return value.is_number_integer() && value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
}

}  // namespace

JsonObject::JsonObject(std::string file, std::string prefix, std::shared_ptr<const nlohmann::json> root,
                       const nlohmann::json* value)
    : file_(std::move(file)), prefix_(std::move(prefix)), root_(std::move(root)), value_(value) {}

JsonObject JsonObject::load(const std::filesystem::path& file) {
  const std::string text = read_text_file(file, kLargestJson);
  std::shared_ptr<const nlohmann::json> root;
  try {
    root = std::make_shared<const nlohmann::json>(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& broken) {
    throw_bad_input(fmt::format("{}: found broken JSON ({}), expected an object", file.string(), broken.what()));
  }
  if (!root->is_object()) {
    throw_bad_input(fmt::format("{}: found {}, expected a JSON object", file.string(), shown(*root)));
  }
  const nlohmann::json* value = root.get();
  return {file.string(), "", std::move(root), value};
}

bool JsonObject::has(std::string_view key) const {
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> all;
  for (const auto& item : value_->items()) {
    all.push_back(item.key());
  }
  return all;
}

void JsonObject::refuse(std::string_view key, std::string_view expected) const {
  const auto found = value_->find(key);
  throw_bad_input(fmt::format("{}: {}{}: found {}, expected {}", file_, prefix_, key,
                              found == value_->end() ? "nothing" : shown(*found), expected));
}

const nlohmann::json& JsonObject::at(std::string_view key, std::string_view expected) const {
  if (!has(key)) {
    refuse(key, expected);
  }
  return *value_->find(key);
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const std::string expected = integer_between(low, high);
  const nlohmann::json& value = at(key, expected);
  if (!is_integer_between(value, low, high)) {
    refuse(key, expected);
  }
  return value.get<std::int64_t>();
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t low, std::int64_t high,
                                 std::int64_t fallback) const {
  return has(key) ? integer(key, low, high) : fallback;
}

double JsonObject::number(std::string_view key, double low, double high) const {
  const std::string expected = fmt::format("a number from {} to {}", low, high);
  const nlohmann::json& value = at(key, expected);
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
    refuse(key, expected);
  }
  return value.get<double>();
}

double JsonObject::number(std::string_view key, double low, double high, double fallback) const {
  return has(key) ? number(key, low, high) : fallback;
}

bool JsonObject::boolean(std::string_view key, bool fallback) const {
  if (!has(key)) {
    return fallback;
  }
  const nlohmann::json& value = *value_->find(key);
  if (!value.is_boolean()) {
    refuse(key, "true or false");
  }
  return value.get<bool>();
}

std::string JsonObject::text(std::string_view key) const {
  const nlohmann::json& value = at(key, "a string");
  if (!value.is_string()) {
    refuse(key, "a string");
  }
  return value.get<std::string>();
}

std::string JsonObject::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}

JsonObject JsonObject::object(std::string_view key) const {
  const nlohmann::json& value = at(key, "an object");
  if (!value.is_object()) {
    refuse(key, "an object");
  }
  return {file_, fmt::format("{}{}.", prefix_, key), root_, &value};
}

std::vector<std::int64_t> JsonObject::integers(std::string_view key, std::int64_t low, std::int64_t high) const {
  std::vector<std::int64_t> all;
  if (!has(key)) {
    return all;
  }
  const nlohmann::json& value = *value_->find(key);
  const auto take = [&](const nlohmann::json& item) {
    if (!is_integer_between(item, low, high)) {
      refuse(key, integer_between(low, high) + " or a list of them");
    }
    all.push_back(item.get<std::int64_t>());
  };
  if (value.is_array()) {
    for (const nlohmann::json& item : value) {
      take(item);
    }
  } else {
    take(value);
  }
  return all;
}

}  // namespace specdec
