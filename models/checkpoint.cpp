#include "models/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "backend/error.h"
#include "models/text_file.h"

namespace specdec {

/// One file, mapped read-only for the life of the checkpoint.
class Checkpoint::Mapping {
 public:
  explicit Mapping(const std::filesystem::path& file) : source_{.path = file.string()} {
    const int descriptor = ::open(source_.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      throw_bad_input(fmt::format("{}: found {}, expected a safetensors file", source_.path, std::strerror(errno)));
    }
    struct stat status = {};
    const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    bytes_ = regular ? static_cast<std::size_t>(status.st_size) : 0;
    void* at = bytes_ == 0 ? MAP_FAILED : ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    ::close(descriptor);
    if (at == MAP_FAILED) {
      throw_bad_input(fmt::format("{}: found {}, expected a safetensors file", source_.path,
                                  !regular      ? "a directory or device"
                                  : bytes_ == 0 ? "an empty file"
                                                : "no memory to map it"));
    }
    source_.data = static_cast<const std::byte*>(at);
    source_.state = state_of(status);
  }
  ~Mapping() {
    ::munmap(const_cast<std::byte*>(source_.data), bytes_);
  }  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const SourceFile& source() const { return source_; }
  const std::string& file() const { return source_.path; }
  const std::byte* data() const { return source_.data; }
  std::size_t bytes() const { return bytes_; }

 private:
  static std::string state_of(const struct stat& status) {
    return fmt::format("device {} inode {} bytes {} written {}.{:09} changed {}.{:09}", status.st_dev, status.st_ino,
                       status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                       status.st_ctim.tv_nsec);
  }

  SourceFile source_;
  std::size_t bytes_ = 0;
};

namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr std::uint64_t kLargestIndex = std::uint64_t{256} << 20;

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string name;
};

/// One entry of a header. A tensor of a type that this program cannot compute with keeps its place in the file but has
/// no view.
struct Entry {
  std::string name;
  std::optional<TensorView> view;
  std::string dtype;
  Extent extent;
};

struct TypeName {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;
};
// All types of the format: a buffer of masks (BOOL, U8, I64) may lie beside the weights and is left alone.
constexpr TypeName kTypes[] = {
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
};

[[noreturn]] void refuse(const std::string& file, const std::string& tensor, const std::string& found,
                         const std::string& expected) {
  throw_bad_input(fmt::format("{}: {}: found {}, expected {}", file, tensor, found, expected));
}

/// A name as a message may show it: one short line of ASCII, whatever the file holds.
std::string printable(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::string text =
      nlohmann::json(name.substr(0, kLongest)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

std::uint64_t unsigned_at(const nlohmann::json& value, const std::string& file, const std::string& tensor,
                          std::string_view what) {
  if (!value.is_number_unsigned()) {
    refuse(file, tensor, std::string(what) + " that is no unsigned integer", "one");
  }
  return value.get<std::uint64_t>();
}

/// JSON text of a header, with duplicate keys refused: which of two tensors is meant cannot be known.
nlohmann::json parse_header(const std::string& file, const char* begin, const char* end) {
  std::set<std::string, std::less<>> seen;
  const auto refuse_duplicates = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second) {
      refuse(file, printable(parsed.get<std::string>()), "the name twice in the header", "each tensor once");
    }
    return true;
  };
  nlohmann::json header;
  try {
    header = nlohmann::json::parse(begin, end, refuse_duplicates);
  } catch (const nlohmann::json::exception& broken) {
    refuse(file, "header", fmt::format("broken JSON (error {})", broken.id), "a JSON object");
  }
  if (!header.is_object()) {
    refuse(file, "header", "JSON that is no object", "a JSON object");
  }
  return header;
}

Entry read_entry(const std::string& file, const std::string& key, const nlohmann::json& value,
                 std::uint64_t data_bytes) {
  const std::string name = printable(key);
  Entry entry;
  entry.name = key;
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
      !value["shape"].is_array() || !value.contains("data_offsets") || !value["data_offsets"].is_array() ||
      value["data_offsets"].size() != 2) {
    refuse(file, name, "an incomplete entry", "dtype, shape and data_offsets [begin, end]");
  }
  entry.dtype = value["dtype"].get<std::string>();
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const TypeName& known) { return known.name == entry.dtype; });
  if (type == std::end(kTypes)) {
    refuse(file, name, "dtype " + printable(entry.dtype), "F32, F16 or BF16");
  }
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 1;
  for (const nlohmann::json& size : value["shape"]) {
    const std::uint64_t extent = unsigned_at(size, file, name, "a size");
    // No tensor has more elements than a file could hold bits; this also keeps the products below from overflowing.
    if (extent > (std::uint64_t{1} << 48) || __builtin_mul_overflow(elements, extent, &elements) ||
        elements > (std::uint64_t{1} << 56)) {
      refuse(file, name, "a shape whose product overflows", fmt::format("a tensor inside {} bytes", data_bytes));
    }
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  const std::uint64_t begin = unsigned_at(value["data_offsets"][0], file, name, "an offset");
  const std::uint64_t end = unsigned_at(value["data_offsets"][1], file, name, "an offset");
  if (begin > end || end > data_bytes) {
    refuse(file, name, fmt::format("data_offsets [{}, {}]", begin, end),
           fmt::format("offsets within the {} bytes of data", data_bytes));
  }
  if (elements * (type->bits / 8) != end - begin) {
    refuse(file, name, fmt::format("{} bytes", end - begin),
           fmt::format("{} ({} elements of {})", elements * (type->bits / 8), elements, entry.dtype));
  }
  entry.extent = {begin, end, name};
  if (type->dtype) {
    entry.view = TensorView{*type->dtype, std::move(shape), nullptr};
  }
  return entry;
}

/// The format allows neither overlaps nor holes: every byte of data belongs to one tensor.
void check_extents(const std::string& file, std::vector<Extent> extents, std::uint64_t data_bytes) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != at) {
      refuse(file, extent.name, fmt::format("data from byte {}", extent.begin),
             fmt::format("byte {} ({})", at,
                         extent.begin < at ? "it overlaps another tensor" : "bytes of no tensor lie before it"));
    }
    at = extent.end;
  }
  if (at != data_bytes) {
    refuse(file, "header", fmt::format("tensors of {} bytes", at),
           fmt::format("{} bytes, the data in the file", data_bytes));
  }
}

std::vector<Entry> read_header(const std::string& file, const std::byte* data, std::uint64_t bytes) {
  constexpr std::uint64_t kPrefix = 8;
  if (bytes < kPrefix) {
    refuse(file, "header", fmt::format("a file of {} bytes", bytes), "a safetensors file");
  }
  std::uint64_t header_bytes = 0;
  for (std::uint64_t i = 0; i < kPrefix; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  }
  if (header_bytes > kLargestHeader || header_bytes > bytes - kPrefix) {
    refuse(file, "header", fmt::format("a declared length of {} bytes", header_bytes),
           fmt::format("at most {}", std::min(kLargestHeader, bytes - kPrefix)));
  }
  const char* text = reinterpret_cast<const char*>(data + kPrefix);
  const nlohmann::json header = parse_header(file, text, text + header_bytes);
  const std::uint64_t data_bytes = bytes - kPrefix - header_bytes;
  std::vector<Entry> entries;
  std::vector<Extent> extents;
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") {
      continue;
    }
    Entry entry = read_entry(file, item.key(), item.value(), data_bytes);
    if (entry.view) {
      entry.view->data = data + kPrefix + header_bytes + entry.extent.begin;
    }
    extents.push_back(entry.extent);
    entries.push_back(std::move(entry));
  }
  check_extents(file, std::move(extents), data_bytes);
  return entries;
}

/// weight_map of an index: tensor -> file, each file a plain name inside the directory.
std::map<std::string, std::string> read_index(const std::filesystem::path& index) {
  const std::string file = index.string();
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_text_file(index, kLargestIndex));
  } catch (const nlohmann::json::exception& broken) {
    refuse(file, "index", fmt::format("broken JSON (error {})", broken.id), "a JSON object");
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object() ||
      json["weight_map"].empty()) {
    refuse(file, "weight_map", "none", "an object of tensor names to file names");
  }
  std::map<std::string, std::string> map;
  for (const auto& item : json["weight_map"].items()) {
    if (!item.value().is_string()) {
      refuse(file, printable(item.key()), "a value that is no string", "a file name");
    }
    const auto name = item.value().get<std::string>();
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\\') != std::string::npos || name.find('\0') != std::string::npos) {
      refuse(file, printable(item.key()), printable(name), "a file name inside the directory");
    }
    map[item.key()] = name;
  }
  return map;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& directory) : directory_(directory) {
  std::error_code error;
  const std::filesystem::path single = directory / "model.safetensors";
  const std::filesystem::path index = directory / "model.safetensors.index.json";
  std::map<std::string, std::string> index_map;
  std::set<std::string> names;
  if (std::filesystem::exists(single, error)) {
    names.insert("model.safetensors");
  } else if (std::filesystem::exists(index, error)) {
    index_map = read_index(index);
    for (const auto& [tensor, file] : index_map) {
      names.insert(file);
    }
  } else {
    throw_bad_input(
        fmt::format("{}: found neither model.safetensors nor model.safetensors.index.json, expected one (or "
                    "weights: random, to time a shape without its checkpoint)",
                    directory.string()));
  }
  std::map<std::string, std::string> found_in;
  for (const std::string& name : names) {
    files_.push_back(std::make_unique<Mapping>(directory / name));
    const Mapping& mapping = *files_.back();
    for (Entry& entry : read_header(mapping.file(), mapping.data(), mapping.bytes())) {
      if (!found_in.emplace(entry.name, name).second) {
        refuse(mapping.file(), printable(entry.name), "a tensor that another file has too", "each tensor once");
      }
      if (entry.view) {
        entry.view->source = &mapping.source();
        tensors_.emplace(entry.name, std::move(*entry.view));
      }
    }
  }
  for (const auto& [tensor, file] : index_map) {
    const auto where = found_in.find(tensor);
    if (where == found_in.end() || where->second != file) {
      refuse(index.string(), printable(tensor), "no such tensor in " + printable(file), "the file to hold it");
    }
  }
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

bool Checkpoint::contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

TensorView Checkpoint::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  const std::string text = shape_text(shape);
  if (found == tensors_.end()) {
    refuse(directory_.string(), std::string(name), "no such tensor in F32, F16 or BF16", "one of shape " + text);
  }
  if (found->second.shape != shape) {
    refuse(directory_.string(), std::string(name), "shape " + shape_text(found->second.shape), text);
  }
  return found->second;
}

}  // namespace specdec
