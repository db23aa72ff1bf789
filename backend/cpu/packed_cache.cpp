#include "backend/cpu/packed_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/cpu/parallel_for.h"

namespace specdec {
namespace {

/// Of the files, apart from the panels.
constexpr int kFormat = 1;
constexpr std::size_t kPage = 4096;
/// Written before the disk is waited for: short enough that a slow one does not look like a rank that hangs.
constexpr std::size_t kWrittenAtATime = std::size_t{64} << 20;

using Digest = std::array<std::byte, sizeof(XXH128_canonical_t)>;

Digest digest_of(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return std::bit_cast<Digest>(canonical);
}

/// The hashes of a file's pieces, which any number of threads may make, in one.
class FileDigest {
 public:
  explicit FileDigest(const PackedKey& key) : parts_(1 + (key.bytes + key.piece_bytes - 1) / key.piece_bytes) {
    parts_.front() = digest_of(std::as_bytes(std::span(key.header)));
  }
  std::size_t pieces() const { return parts_.size() - 1; }
  void set(std::size_t piece, std::span<const std::byte> bytes) { parts_[piece + 1] = digest_of(bytes); }
  Digest value() const { return digest_of(std::as_bytes(std::span(parts_))); }

 private:
  std::vector<Digest> parts_;
};

template <typename Bytes>
Bytes piece_of(Bytes panels, std::size_t piece_bytes, std::size_t piece) {
  const std::size_t begin = piece * piece_bytes;
  return panels.subspan(begin, std::min(piece_bytes, panels.size() - begin));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

/// A plain file of this user that nobody else may write, or has under another name. One that was replaced since it was opened has no name left, and is as whole as it was.
bool is_ours(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
         status.st_nlink <= 1;
}

bool read_all(int file, std::span<std::byte> out, std::size_t at) {
  while (!out.empty()) {
    const ssize_t got = ::pread(file, out.data(), out.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::size_t>(got);
  }
  return true;
}

/// Of the calls below: false with errno.
bool write_all(int file, std::span<const std::byte> bytes, std::size_t at) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    at += static_cast<std::size_t>(put);
  }
  return true;
}

bool write_file(int file, const PackedKey& key, std::span<const std::byte> panels,
                const std::function<void()>& progress) {
  FileDigest digest(key);
  for (std::size_t piece = 0; piece < digest.pieces(); ++piece) {
    digest.set(piece, piece_of(panels, key.piece_bytes, piece));
  }
  const Digest value = digest.value();
  const std::size_t bytes = key.header.size() + key.bytes + value.size();
  // The kernel would end the process for going beyond it.
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    errno = EFBIG;
    return false;
  }
  if (::ftruncate(file, 0) != 0 || !write_all(file, std::as_bytes(std::span(key.header)), 0)) return false;
  for (std::size_t begin = 0; begin < panels.size(); begin += kWrittenAtATime) {
    const auto part = panels.subspan(begin, std::min(kWrittenAtATime, panels.size() - begin));
    if (!write_all(file, part, key.header.size() + begin)) return false;
    if (begin + part.size() < panels.size() && ::fdatasync(file) != 0) return false;
    progress();
  }
  return write_all(file, value, key.header.size() + key.bytes) && ::fsync(file) == 0;
}

}  // namespace

std::optional<PackedKey> PackedKey::of(const LinearSpec& spec, int layout, std::size_t bytes, std::size_t piece_bytes) {
  if (bytes == 0 || std::ranges::any_of(spec.stacked, [](const WeightView& view) { return view.source == nullptr; })) {
    return std::nullopt;
  }
  std::string place = fmt::format("dtype {}{}\nslices", name_of(spec.dtype), spec.gated ? " gated" : "");
  for (const Range& slice : spec.slices) place += fmt::format(" {}-{}", slice.begin, slice.end);
  std::string state;
  for (const WeightView& view : spec.stacked) {
    place += fmt::format("\n{} {}x{} strides {} {} at {} of {}", name_of(view.dtype), view.rows, view.cols,
                         view.row_stride, view.col_stride, view.data - view.source->data, view.source->path);
    state += "\n" + view.source->state;
  }
  PackedKey key{.bytes = bytes, .piece_bytes = piece_bytes};
  for (const std::byte part : digest_of(std::as_bytes(std::span(place)))) {
    key.file_name += fmt::format("{:02x}", std::to_integer<int>(part));
  }
  key.file_name += ".packed";
  key.header = fmt::format("specdec packed weights\nformat {}, layout {}, {} endian\n{} bytes in pieces of {}\n{}{}\n",
                           kFormat, layout, std::endian::native == std::endian::little ? "little" : "big", bytes,
                           piece_bytes, place, state);
  key.header.resize((key.header.size() + kPage - 1) / kPage * kPage, '\0');
  return key;
}

PackedCache::PackedCache(std::filesystem::path folder, std::function<void()> progress)
    : folder_(std::move(folder)), progress_(std::move(progress)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error || !std::filesystem::is_directory(folder_, error)) {
    problem_ = fmt::format("{}: found {}, expected a folder, or a place where one can be made", folder_.string(),
                           error ? error.message() : "no folder");
    folder_.clear();
  }
}

std::optional<AlignedArray> PackedCache::load(const PackedKey& key, ThreadPool& pool) {
  const auto found = [&]() -> std::optional<AlignedArray> {
    if (folder_.empty()) return std::nullopt;
    // Not waiting for whoever would write to a pipe of this name.
    const Descriptor file(::open((folder_ / key.file_name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status = {};
    Digest want = {};
    const std::size_t bytes = key.header.size() + key.bytes + want.size();
    std::string header(key.header.size(), '\0');
    if (!file || ::fstat(file.number(), &status) != 0 || !is_ours(status) ||
        static_cast<std::size_t>(status.st_size) != bytes ||
        !read_all(file.number(), std::as_writable_bytes(std::span(header)), 0) || header != key.header ||
        !read_all(file.number(), want, bytes - want.size())) {
      return std::nullopt;
    }
    AlignedArray panels(key.bytes, AlignedArray::Fill::kNone);
    FileDigest digest(key);
    std::atomic<bool> whole = true;
    parallel_for(pool, pool.size(), static_cast<std::int64_t>(digest.pieces()), [&](int, std::int64_t at) {
      const auto piece = static_cast<std::size_t>(at);
      const auto out = piece_of(std::span(panels.data(), key.bytes), key.piece_bytes, piece);
      if (read_all(file.number(), out, key.header.size() + piece * key.piece_bytes)) {
        digest.set(piece, out);
      } else {
        whole = false;
      }
    });
    if (!whole || digest.value() != want) return std::nullopt;
    return panels;
  };
  std::optional<AlignedArray> panels = found();
  ++(panels ? loaded_ : missed_);
  return panels;
}

void PackedCache::store(const PackedKey& key, const AlignedArray& panels) {
  if (!problem_.empty()) return;
  const std::filesystem::path file = folder_ / key.file_name;
  const std::string part = file.string() + ".part";
  const auto give_up = [&](int error) { problem_ = fmt::format("{}: {}", part, std::strerror(error)); };
  const Descriptor descriptor(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (!descriptor) return give_up(errno);
  // What a killed process left behind is nobody's and is written over, so that such files do not pile up.
  if (::flock(descriptor.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) give_up(errno);  // else another process is at it
    return;
  }
  struct stat opened = {};
  struct stat named = {};
  if (::fstat(descriptor.number(), &opened) != 0) return give_up(errno);
  if (::lstat(part.c_str(), &named) != 0 || named.st_dev != opened.st_dev || named.st_ino != opened.st_ino) {
    return;  // between the two calls above another process finished it: this is the file that others read
  }
  if (!is_ours(opened)) return give_up(EPERM);
  if (!write_file(descriptor.number(), key, std::span(panels.data(), panels.bytes()), progress_) ||
      ::rename(part.c_str(), file.c_str()) != 0) {
    give_up(errno);
    ::unlink(part.c_str());
  }
}

}  // namespace specdec
