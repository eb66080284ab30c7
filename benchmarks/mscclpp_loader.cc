// Loads execution plans with MSCCL++'s own execution_plan.cc and prints, as JSON, what it made of them.
//
// Arguments: PLAN, ranks, bytes of the input and of the output. A line for each rank; {"refused": why} where it is refused.
// No GPU and no CUDA library is needed: what errors.cc asks of CUDA is answered below.

#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <unordered_map>

#define private public  // the loader is a private class of ExecutionPlan
#include "execution_plan.hpp"
#undef private

extern "C" {
const char* cudaGetErrorString(cudaError_t) { return ""; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "", CUDA_SUCCESS; }
}

using json = nlohmann::json;
using namespace mscclpp;

template <typename References>
static json references(const References& refs, const uint32_t* offsets, const uint32_t* sizes, int count) {
  json found = json::array();
  for (int i = 0; i < count; i++) found.push_back({refs[i].id, offsets[i], sizes[i]});
  return found;
}

static json operation(const Operation& op) {
  json found = {{"type", (int)op.type}, {"channel", (int)op.channelType}};
  if (op.type == OperationType::SEM_ACQUIRE || op.type == OperationType::SEM_RELEASE) {
    found["semaphores"] = std::vector<uint32_t>(op.deviceSemaphoreIds, op.deviceSemaphoreIds + op.nDeviceSemaphores);
    return found;
  }
  found["channels"] = std::vector<int>(op.channelIndexes, op.channelIndexes + op.nChannels);
  found["src"] = references(op.inputBufferRefs, op.inputOffsets, op.inputBufferSizes, op.nInputs);
  found["dst"] = references(op.outputBufferRefs, op.outputOffsets, op.outputBufferSizes, op.nOutputs);
  return found;
}

static json load(const std::string& path, int rank, size_t input, size_t output) {
  ExecutionPlan::Impl plan(path, rank);
  plan.loadExecutionPlan(input, output, 0, 0);
  json blocks = json::array();
  for (int b = 0; b < plan.getThreadblockCount(); b++) {
    json ops = json::array();
    for (const Operation& op : plan.getOperations(b)) ops.push_back(operation(op));
    auto buffers = [](const auto& own) {
      json found = json::array();
      for (const auto& [number, type] : own) found.push_back({number, (int)type});
      return found;
    };
    blocks.push_back({{"ops", ops},
                      {"memory", plan.threadblockMemoryChannels[b]},
                      {"port", plan.threadblockPortChannels[b]},
                      {"memory_buffers", buffers(plan.threadblockMemoryChannelBuffers[b])},
                      {"port_buffers", buffers(plan.threadblockPortChannelBuffers[b])}});
  }
  json remote = json::array();
  for (const BufferInfo& info : plan.getRemoteBufferInfos()) {
    for (ChannelType type : info.accessChannelTypes) {
      remote.push_back({info.rank, (int)info.bufferType, type == ChannelType::PORT ? "port" : "memory"});
    }
  }
  json peers = {{"memory", json::array()}, {"port", json::array()}};
  for (auto [name, type] : {std::pair("memory", ChannelType::MEMORY), std::pair("port", ChannelType::PORT)}) {
    for (const ChannelInfo& info : plan.getChannelInfos(type)) {
      for (int peer : info.connectedPeers) peers[name].push_back(peer);
    }
  }
  size_t unpaired = 0;
  for (ChannelType type : {ChannelType::MEMORY, ChannelType::PORT}) {
    unpaired += plan.getUnpairedChannelInfos(1 << 16, type).size();
  }
  return {{"rank", rank},       {"blocks", blocks},     {"remote", remote},
          {"peers", peers},     {"unpaired", unpaired}, {"semaphores", plan.semaphoreInfos.size()},
          {"scratch", plan.calScratchBufferSize(input, output)}};
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  for (int rank = 0; rank < std::stoi(argv[2]); rank++) {
    try {
      std::cout << load(argv[1], rank, std::stoull(argv[3]), std::stoull(argv[4])).dump() << "\n";
    } catch (const std::exception& error) {
      std::cout << json{{"rank", rank}, {"refused", error.what()}}.dump() << "\n";
    }
  }
}
