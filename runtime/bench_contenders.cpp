#include "runtime/bench_contenders.h"

#include <algorithm>
#include <string_view>

#include "backend/error.h"
#include "parallel/all_reduce_bench.h"
#include "parallel/decode_bench.h"
#include "runtime/interconnect_choice.h"

namespace specdec {
namespace {

constexpr const char* kLibrary = "mpi-fast";  // the transport that is MPI_Allreduce and nothing else
constexpr const char* kInAGraph = "+graph";   // after the name of a transport on the device
constexpr std::uint64_t kJitterSeed = 1;

std::string operation_of(const std::string& transport, DType dtype) {
  if (transport.starts_with("nccl-fast")) {
    return dtype == DType::kF32 ? "ncclSum of ncclFloat32" : "ncclSum of ncclBfloat16";
  }
  const bool library = transport == kBaselineTransport || transport == kLibrary;
  if (dtype == DType::kF32) {
    return library ? "MPI_SUM of MPI_FLOAT" : "fixed tree";
  }
  // MPI knows no bf16.
  return library ? "user operation on MPI_UINT16_T: fp32 sum rounded to bf16" : "fixed tree, each sum rounded to bf16";
}

}  // namespace

BenchContenders::BenchContenders(MpiSession& session, Communicator& control, const BenchCommand& command,
                                 const std::optional<Interconnect>& interconnect)
    : control_(control) {
  const auto named = [&](const std::string& name) {
    return session.world(name, {.place = "--transport", .gpu = {.share = command.share_gpus}});
  };
  entries_.push_back({.name = kBaselineTransport, .transport = named(kLibrary), .link = {}});
  for (const std::string& asked : command.transports) {
    std::unique_ptr<Communicator> transport = named(asked);
    const std::string name(transport->transport());
    if (std::ranges::find(entries_, name, &Entry::name) != entries_.end()) continue;  // what auto stands for, perhaps
    std::unique_ptr<ModelledLink> link;
    if (interconnect) {
      link = make_modelled_link(*transport, kJitterSeed);
      link->use(interconnect);
    }
    const bool on_device = transport->on_device();
    entries_.push_back({.name = name, .transport = std::move(transport), .link = std::move(link)});
    if (on_device) {
      Communicator* const group = entries_.back().transport.get();
      for (const DeviceWay way : {DeviceWay::kGraph, DeviceWay::kManyInGraph}) {
        entries_.push_back({.name = name + kInAGraph, .graph_of = group, .way = way});
      }
    }
  }
  for (const Entry& entry : entries_) {
    contenders_.push_back(contender_of(entry, session.progress()));
  }
}

Contender BenchContenders::contender_of(const Entry& entry, Progress& progress) {
  if (ModelledLink* const link = entry.link.get()) {
    return {.group = link, .late = [link] { return link->totals().late; }};
  }
  Communicator* const group = entry.graph_of != nullptr ? entry.graph_of : entry.transport.get();
  if (!group->on_device()) {
    return {.group = group};
  }
  return {.group = group, .on_device = [group, way = entry.way, &progress](DType dtype, std::size_t elements) {
            return make_device_payload(*group, dtype, elements, way, progress);
          }};
}

BenchRow BenchContenders::row_of(const Entry& entry, DType dtype, std::size_t bytes) const {
  BenchRow row{.transport = entry.name,
               .operation = operation_of(entry.name, dtype),
               .interconnect = label_of(std::nullopt),
               .ranks = control_.size(),
               .bytes = bytes,
               .dtype = bench_name(dtype)};
  if (entry.link) {
    const Interconnect& interconnect = *entry.link->interconnect();
    row.interconnect = label_of(interconnect);
    row.modelled_seconds = interconnect.all_reduce(bytes, control_.size());
  }
  return row;
}

std::vector<BenchRow> BenchContenders::all_reduce(const BenchPayload& payload, const BenchEffort& effort,
                                                  const std::function<bool()>& stop) {
  const std::size_t elements = payload.bytes / size_of(payload.dtype);
  const std::vector<AllReduceFigures> figures =
      payload.dtype == DType::kF32 ? bench_all_reduce<float>(control_, contenders_, elements, effort, stop)
                                   : bench_all_reduce<BF16>(control_, contenders_, elements, effort, stop);
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    BenchRow row = row_of(entries_[i], payload.dtype, payload.bytes);
    row.tokens = payload.tokens;
    row.iterations = figures[i].iterations;
    row.seconds = figures[i].seconds;
    row.wrong = figures[i].wrong;
    if (entries_[i].way == DeviceWay::kManyInGraph) {
      row.what = kReplay + std::to_string(all_reduces_in_graph(payload.bytes));
    } else if (row.modelled()) {
      row.late = figures[i].late;
    } else if (figures[0].seconds.p50 > 0) {
      row.over_baseline = row.seconds.p50 / figures[0].seconds.p50;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<BenchRow> BenchContenders::decode(const ModelShape& model, std::int64_t rows, DType dtype,
                                              const BenchEffort& effort, const std::function<bool()>& stop) {
  const DecodeShape shape = model.decode(rows, control_.size());
  const std::vector<DecodeFigures> figures = dtype == DType::kF32
                                                 ? bench_decode<float>(control_, contenders_, shape, effort, stop)
                                                 : bench_decode<BF16>(control_, contenders_, shape, effort, stop);
  const std::size_t payload = shape.elements * size_of(dtype);
  std::vector<BenchRow> out;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const DecodeFigures& mine = figures[i];
    const auto add = [&](const char* what, std::size_t bytes, LatencySummary DecodeFigures::*series) {
      BenchRow row = row_of(entries_[i], dtype, bytes);
      row.what = what;
      row.tokens = rows;
      row.iterations = mine.tokens;
      row.seconds = mine.*series;
      const double baseline = (figures[0].*series).p50;
      if (!row.modelled() && baseline > 0) row.over_baseline = row.seconds.p50 / baseline;
      out.push_back(std::move(row));
      return &out.back();
    };
    const auto all_reduces = static_cast<double>(2 * shape.layers);
    const Interconnect* const model_of_link = entries_[i].link ? entries_[i].link->interconnect() : nullptr;
    const auto modelled = [&](const auto& seconds) {
      return model_of_link != nullptr ? std::optional<double>(seconds(*model_of_link)) : std::nullopt;
    };
    const auto modelled_all_reduces = [&](const Interconnect& wire) {
      return all_reduces * wire.all_reduce(payload, control_.size());
    };
    const auto modelled_broadcast = [&](const Interconnect& wire) {
      return wire.broadcast(shape.round_bytes, control_.size());
    };
    BenchRow* row = add("token", payload, &DecodeFigures::token);
    row->gap_seconds = mine.gap;
    row->modelled_seconds = modelled([&](const Interconnect& wire) {
      return all_reduces * mine.gap + modelled_all_reduces(wire) + modelled_broadcast(wire);
    });
    if (row->modelled()) row->late = mine.late;
    row = add("all_reduces", payload, &DecodeFigures::all_reduces);
    row->modelled_seconds = modelled(modelled_all_reduces);
    row = add("all_reduce", payload, &DecodeFigures::all_reduce);
    row->iterations = static_cast<int>(2 * shape.layers) * mine.tokens;
    row->wrong = mine.wrong;
    row = add("broadcast", shape.round_bytes, &DecodeFigures::broadcast);
    row->operation.clear();
    row->modelled_seconds = modelled(modelled_broadcast);
  }
  return out;
}

}  // namespace specdec
