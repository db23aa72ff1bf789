#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/dtype.h"
#include "backend/random_elements.h"
#include "backend/source_file.h"
#include "backend/tensor.h"

/// What one rank computes with: memory and the dozen operations that a transformer needs. A layer never asks which
/// backend it has. The numerics that every implementation keeps are docs/numerics.md; the ones a caller relies on are
/// repeated at each operation.
namespace specdec {

/// An ordered queue of work on a backend. On a CPU an operation is done when its call returns and `native` is null; on a GPU it is a
/// cudaStream_t.
struct Stream {
  void* native = nullptr;
};

/// 2-D weight as it lies in a mapped checkpoint, [rows = outputs, cols = inputs], any strides (GPT-2's Conv1D weights are
/// transposed). Strides count elements. The bytes need not be aligned. With `random` there are no bytes: element (r, c) is number
/// r * row_stride + c * col_stride of those, in place of the one that far from `data`. read_row() reads both.
struct WeightView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
  std::optional<RandomElements> random = {};
  /// The file that `data` points into; null where there is none, or nobody knows. It outlives the view.
  const SourceFile* source = nullptr;
};

/// out [cols] = row `row`, as fp32.
void read_row(const WeightView& weight, std::int64_t row, std::span<float> out);

/// What `Backend::pack` makes a matrix of: this rank's shard of one linear layer.
struct LinearSpec {
  /// Stacked along the outputs (q, k, v; gate, up); all with the same number of columns, the local inner dimension.
  std::vector<WeightView> stacked;
  /// The canonical slices of the local inner dimension that this rank owns, in order, covering [0, cols) without gaps; some
  /// may be empty. A column-parallel or replicated layer has exactly one: the whole inner dimension.
  std::vector<Range> slices;
  /// Type of the packed weights; the CPU backend has no kF16, GPUs no kInt8.
  DType dtype = DType::kBF16;
  /// `stacked` are gates and as many outputs that they gate: for matmul_silu_mul(), so that a backend may lay the two of a pair side by side.
  bool gated = false;

  /// Whether all of it is made and not read, so that a backend may make it where it will lie.
  bool random() const {
    return std::ranges::all_of(stacked, [](const WeightView& view) { return view.random.has_value(); });
  }
};

/// What a pass brings to attention in one layer: rows of queries, keys and values, [rows, heads * head_dim] each, not rotated yet, and the tables that rotate them,
/// cos and sin [positions, head_dim / 2].
struct NewHeads {
  Rows query;
  Rows keys;
  ConstRows values;
  const float* cos;
  const float* sin;
};

/// Whether a layout on the host gets its weights, or whoever asked for it makes them elsewhere.
enum class Contents : std::uint8_t { kPacked, kNone };

/// A weight matrix in the layout of the backend that packed it.
class PackedLinear {
 public:
  virtual ~PackedLinear() = default;
  virtual std::int64_t out_features() const = 0;
  virtual std::int64_t in_features() const = 0;
  /// Bytes that one pass over the matrix reads.
  virtual std::size_t bytes() const = 0;
};

/// Zero-filled memory of a backend, aligned to 64 bytes.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual std::size_t bytes() const = 0;
  float* floats() { return reinterpret_cast<float*>(data()); }
};

/// Keys and values of all layers on this rank, in the backend's own layout. Slot = place of a token in the cache.
struct KvShape {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;  ///< on this rank; may be 0
  std::int64_t head_dim = 0;
  std::int64_t capacity = 0;  ///< slots
};

class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual const KvShape& shape() const = 0;
};

/// Rows that embed() picks from.
class RowTable {
 public:
  virtual ~RowTable() = default;
};

/// The rows of one pass: row i is the token at `position[i]`, stored in slot `first_slot + i`, whose predecessor is row
/// `parent[i]` of this pass, or the last committed token when parent[i] is -1. A chain has parent[i] = i - 1. Row i attends to
/// the slots [0, first_slot), to itself and to its ancestors in this pass.
struct RowChain {
  std::span<const std::int32_t> position;
  std::span<const std::int32_t> parent;
  std::int64_t first_slot = 0;

  std::int64_t rows() const { return static_cast<std::int64_t>(position.size()); }
};

/// Passes that come again and again, with the same operations on the same memory: a backend may record those of a pass once and replay them, which
/// saves the launches of a GPU.
class PassRecorder {
 public:
  virtual ~PassRecorder() = default;
  /// Does what `operations` does: operations of this backend on the rows `chain` and on `kv`, and nothing on the host that matters. Passes of one
  /// recorder with the same `variant`, number of rows and `kv` do the same, whatever the chain says of their places.
  virtual void run(int variant, const RowChain& chain, const KvStore& kv, const std::function<void()>& operations) = 0;
};

/// Largest entry of one vocabulary slice and its index in the row; an empty slice has {-inf, -1}. Ties: the lowest index.
struct SliceMax {
  float value = 0;
  std::int32_t index = -1;
};

/// max and sum of exp(z - max) over one vocabulary slice; an empty slice has {-inf, 0}.
struct SliceSum {
  float max = 0;
  float sum = 0;
};

class RowSampler;
struct SamplingParams;

/// Told when the host waits for the device of a backend, so that a device that hangs shows.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void begin_wait() = 0;
  /// Again and again until the device is done. May throw, which ends the wait.
  virtual void poll() = 0;
  virtual void end_wait() = 0;
};

/// Moments in the order of a backend's work, which tell the time that a device took for what the host did not wait for in between.
class Moments {
 public:
  virtual ~Moments() = default;
  /// Moment `which` is when all that has been enqueued so far is done.
  virtual void mark(int which) = 0;
  /// Seconds from one to the other. The host has waited since both were marked.
  virtual double between(int from, int to) const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// For reports: "reference", "cpu (avx512_bf16, 1 thread)".
  virtual std::string description() const = 0;

  // --- Memory ---------------------------------------------------------------------------------------------------
  /// Whether the host reads and writes its memory where it lies.
  virtual bool on_host() const { return true; }
  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
  virtual void upload(std::byte* device, std::span<const std::byte> host, Stream stream) = 0;
  virtual void download(std::span<std::byte> host, const std::byte* device, Stream stream) = 0;
  /// Returns when all work in the stream is done. What was downloaded is in the host's memory then.
  virtual void synchronize(Stream stream) = 0;
  /// The queue that all operations go through, for what others enqueue between them.
  virtual Stream stream() const { return {}; }
  /// From now on `observer` is told of every wait for a device, until another one is or null. It must outlive its waits. Nothing on a CPU.
  virtual void observe_waits(WaitObserver* /*observer*/) {}
  /// `count` of them. Null where an operation is done when its call returns, so that the host's clock tells.
  virtual std::unique_ptr<Moments> make_moments(int /*count*/) { return nullptr; }

  // --- Passes -----------------------------------------------------------------------------------------------------
  /// For one model. The default does everything at once.
  virtual std::unique_ptr<PassRecorder> make_recorder();

  // --- Embedding --------------------------------------------------------------------------------------------------
  /// A backend whose memory is the host's reads the rows from where they lie: `weight` must outlive the table.
  virtual std::unique_ptr<RowTable> make_table(const WeightView& weight) = 0;
  /// x[r] = table[index[r]] in fp32. index [x.rows] in this backend's memory, every one a row of the table, or -1 (no token
  /// could be drawn) for a row of zeros.
  virtual void embed(const RowTable& table, const std::int32_t* index, Rows x, Stream stream) = 0;

  // --- Linear layers ----------------------------------------------------------------------------------------------
  virtual std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) = 0;
  /// y[r, n] = tree over slices s of (sum over k in s, in order and from zero, of x[r, k] * w[n, k]), in fp32. x is rounded to bf16
  /// or fp16 first when the weights are; with int8 it is quantised, and a slice is summed by groups (docs/numerics.md, "int8"), with the same
  /// bits on every backend. A slice that is empty counts as -0.0, the identity; so does a matrix with no columns. Any
  /// number of rows; the result of a row does not depend on the others. x [rows, in_features], y [rows, out_features].
  virtual void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) = 0;
  /// matmul(weight, x, y) for a caller that waits for other ranks then, and comes to multiply with `next`: a backend may ask for its weights already.
  virtual void matmul_before(const PackedLinear& weight, ConstRows x, Rows y, const PackedLinear& /*next*/,
                             Stream stream) {
    matmul(weight, x, y, stream);
  }
  /// matmul(weight, x, gate_up), add_bias(gate_up, bias) and then silu_mul(gate_up, out), for backends that gain from doing it at once: whatever is in
  /// `gate_up` afterwards is nobody's. `weight` was packed as `gated`; bias [out_features], or null for none.
  virtual void matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                               Stream stream) {
    matmul(weight, x, gate_up, stream);
    if (bias != nullptr) {
      add_bias(gate_up, bias, stream);
    }
    silu_mul(gate_up, out, stream);
  }

  // --- Normalisation, over whole rows with 16 fixed lanes ----------------------------------------------------------------
  /// y = x / sqrt(mean(x^2) + eps) * weight. weight [cols]. x and y may be the same.
  virtual void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream stream) = 0;
  /// y = (x - mean) / sqrt(var + eps) * weight + bias. weight, bias [cols].
  virtual void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream stream) = 0;
  /// add(x, y) and then rms_norm(x, ..., z), for backends that gain from reading the row once.
  virtual void add_rms_norm(Rows x, ConstRows y, const float* weight, float eps, Rows z, Stream stream) {
    add(x, y, stream);
    rms_norm(x, weight, eps, z, stream);
  }
  /// add(x, y) and then layer_norm(x, ..., z).
  virtual void add_layer_norm(Rows x, ConstRows y, const float* weight, const float* bias, float eps, Rows z,
                              Stream stream) {
    add(x, y, stream);
    layer_norm(x, weight, bias, eps, z, stream);
  }

  // --- Attention ----------------------------------------------------------------------------------------------------
  /// Rotates every head of x [rows, heads * head_dim] in place, in the "rotate half" form of Hugging Face's Llama: pairs
  /// (i, i + head_dim/2), row r at chain.position[r]. cos and sin are tables [positions, head_dim / 2].
  virtual void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
                    Stream stream) = 0;
  virtual std::unique_ptr<KvStore> make_kv(const KvShape& shape) = 0;
  /// Writes keys and values [rows, kv_heads * head_dim] of `layer` into the slots chain.first_slot, chain.first_slot + 1, ...
  virtual void kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                         Stream stream) = 0;
  /// rope(query), rope(keys) and then kv_append(keys, values), for backends that gain from doing it at once: whatever is in `keys` afterwards is nobody's.
  virtual void rope_append(Rows query, Rows keys, ConstRows values, std::int64_t head_dim, const float* cos,
                           const float* sin, KvStore& kv, std::int64_t layer, const RowChain& chain, Stream stream) {
    rope(query, head_dim, cos, sin, chain, stream);
    rope(keys, head_dim, cos, sin, chain, stream);
    kv_append(kv, layer, chain, keys, values, stream);
  }
  /// Copies slot `from` to slot `to` in all layers: how a path that is no prefix is committed.
  virtual void kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream stream) = 0;
  /// out[r, h] = softmax(scale * q[r, h] . K) V over the slots that `chain` lets row r see. q and out [rows, heads * head_dim];
  /// kv_head[h] is the index in the store of the KV head that query head h reads. Keys are cut into blocks at fixed absolute
  /// slots and combined in block order, so that a row's bits depend on its own keys only.
  virtual void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                         std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) = 0;
  /// rope_append() and then attention() with the rotated queries, for backends that gain from doing it at once: whatever is in the queries and keys afterwards is nobody's.
  virtual void rope_append_attention(const NewHeads& heads, KvStore& kv, std::int64_t layer, const RowChain& chain,
                                     std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) {
    rope_append(heads.query, heads.keys, heads.values, kv.shape().head_dim, heads.cos, heads.sin, kv, layer, chain,
                stream);
    attention(heads.query, kv, layer, chain, kv_head, scale, out, stream);
  }

  // --- Elementwise ---------------------------------------------------------------------------------------------------
  /// out = silu(gate) * up; gate_up [rows, 2 * f] with the gate first, out [rows, f].
  virtual void silu_mul(ConstRows gate_up, Rows out, Stream stream) = 0;
  /// x = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), "gelu_new", in place.
  virtual void gelu_tanh(Rows x, Stream stream) = 0;
  /// y[r] += bias. bias [cols].
  virtual void add_bias(Rows y, const float* bias, Stream stream) = 0;
  /// x = y + x.
  virtual void add(Rows x, ConstRows y, Stream stream) = 0;

  // --- Decisions, per row and vocabulary slice (ranges of columns) ------------------------------------------------------
  /// out [rows * slices], row-major, in host memory when the call returns.
  virtual void slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream stream) = 0;
  /// With z = logits / temperature; out as above.
  virtual void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                         Stream stream) = 0;

  /// Sampling from rows in this backend's memory (backend/row_sampler.h). The default is for backends whose memory is the host's.
  virtual std::unique_ptr<RowSampler> make_row_sampler(const SamplingParams& params);
};

}  // namespace specdec
