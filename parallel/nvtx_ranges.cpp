#include "parallel/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstdint>

namespace specdec {
namespace {

class NvtxRanges final : public RangeSink {
 public:
  NvtxRanges() : domain_(nvtxDomainCreateA("specdec")) {}
  ~NvtxRanges() override { nvtxDomainDestroy(domain_); }
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  void push(const TraceKind& kind, std::optional<std::int64_t> value) override {
    std::array<char, kLongestRangeName + 1> name{};  // ends with a zero
    range_name(kind, value, name);
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name.data();
    if (value) {
      range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
      range.payload.llValue = *value;
    }
    nvtxDomainRangePushEx(domain_, &range);
  }
  void pop() override { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_;
};

}  // namespace

std::unique_ptr<RangeSink> make_nvtx_ranges() { return std::make_unique<NvtxRanges>(); }

}  // namespace specdec
