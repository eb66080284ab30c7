// A rank of MSCCL++'s own executor, for ranks that share one process and one GPU, or a CPU that stands in for one.
//
// Every rank loads a copy of this library of its own: the executor keeps what belongs to a rank in globals (the
// semaphores of its threadblocks, the flag of its packets), which must not be shared. executor.cc of microsoft/mscclpp is
// included as it is, so that what a plan needs can be set up on all ranks before any kernel waits for another: on one GPU
// an allocation could wait for such a kernel. Functions return 0, or 1 if `why` says what went wrong.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#define private public  // Executor::Impl, and ExecutionPlan::impl_
#include "executor.cc"
#undef private
#include "unix_socket.hpp"

extern "C" int resident_blocks(int threads);
extern "C" void delay(unsigned microseconds, cudaStream_t stream);
extern "C" void fill(void* target, size_t bytes, cudaStream_t stream);
extern "C" void copy(void* target, const void* source, size_t bytes, cudaStream_t stream);

extern "C" cudaError_t __real_cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer);

// In place of numa.cc, which needs libnuma and a file of /sys that not every machine has.
namespace mscclpp {
int getDeviceNumaNode(int) { return -1; }
void numaBind(int) {}
}  // namespace mscclpp

static std::atomic<int> withoutIpc{0};

// The executor asks for a handle with which other processes could open memory. Ranks of one process never use it, so a
// machine that gives none can run them all the same.
extern "C" cudaError_t __wrap_cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (__real_cudaIpcGetMemHandle(handle, pointer) == cudaSuccess) return cudaSuccess;
  cudaGetLastError();
  std::memset(handle, 0, sizeof *handle);
  withoutIpc++;
  return cudaSuccess;
}

namespace {

thread_local std::string reason;

struct Rank {
  int rank;
  std::shared_ptr<mscclpp::TcpBootstrap> bootstrap;
  std::shared_ptr<mscclpp::Communicator> communicator;
  std::unique_ptr<mscclpp::Executor> executor;
  std::unique_ptr<mscclpp::ExecutionPlan> plan;
  cudaStream_t stream = nullptr;
  char *input = nullptr, *output = nullptr;        // what a call passes
  std::vector<void*> allocations;                  // buffers of the plan
  char *given = nullptr, *results = nullptr;       // inputs and outputs of all runs, one after the other
  size_t inputBytes = 0, outputBytes = 0;
  int runs = 0;

  void* allocate(size_t bytes) {
    void* pointer = nullptr;
    MSCCLPP_CUDATHROW(cudaMalloc(&pointer, bytes));
    allocations.push_back(pointer);
    return pointer;
  }
};

template <typename Body>
int guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "an exception of an unknown type";
  }
  return 1;
}

}  // namespace

extern "C" {

const char* why() { return reason.c_str(); }

int ipc_refused() { return withoutIpc; }

// Open the socket of which a process has one, as MSCCL++ thinks: its name is the process's. One rank after the other calls
// this before they join, or one could take the name while another binds to it. What closes it is kept, see leave.
int begin() {
  return guarded([] { mscclpp::UnixSocketServer::instance().start(); });
}

int new_id(unsigned char* id) {
  return guarded([&] {
    mscclpp::UniqueId made = mscclpp::TcpBootstrap::createUniqueId();
    std::memcpy(id, made.data(), made.size());
  });
}

int id_bytes() { return mscclpp::UniqueIdBytes; }

// Of the GPU: multiprocessors, threadblocks of the executor that one holds at once, compute capability, its name.
int device(int threads, int* facts, char* name, int room) {
  return guarded([&] {
    cudaDeviceProp found;
    MSCCLPP_CUDATHROW(cudaSetDevice(0));
    MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&found, 0));
    facts[0] = found.multiProcessorCount;
    facts[1] = resident_blocks(threads);
    facts[2] = found.major * 10 + found.minor;
    std::strncpy(name, found.name, room - 1);
  });
}

// Join the other ranks; all call this at once.
int join(int rank, int ranks, const unsigned char* id, Rank** joined) {
  return guarded([&] {
    MSCCLPP_CUDATHROW(cudaSetDevice(0));
    auto own = std::make_unique<Rank>();
    own->rank = rank;
    own->bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, ranks);
    mscclpp::UniqueId same;
    std::memcpy(same.data(), id, same.size());
    own->bootstrap->initialize(same, 20);
    own->communicator = std::make_shared<mscclpp::Communicator>(own->bootstrap);
    own->executor = std::make_unique<mscclpp::Executor>(own->communicator);
    MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking));
    delay(1, own->stream);  // what a first kernel needs is there before another waits
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(own->stream));
    *joined = own.release();
  });
}

// Read a plan and allocate its buffers: one for both where shared is set, else one each; a call's input and output begin
// at these offsets.
int load(Rank* own, const char* path, size_t input, size_t output, int shared, size_t inputOffset, size_t outputOffset) {
  return guarded([&] {
    own->plan = std::make_unique<mscclpp::ExecutionPlan>(path, own->rank);
    char* first = (char*)own->allocate(shared ? std::max(inputOffset + input, outputOffset + output) : input);
    char* second = shared ? first : (char*)own->allocate(output);
    own->input = first + (shared ? inputOffset : 0);
    own->output = second + (shared ? outputOffset : 0);
  });
}

// Set up the plan for messages of a size, and take the inputs of all runs; all ranks call this at once.
int prepare(Rank* own, size_t input, size_t output, int runs, const void* inputs) {
  return guarded([&] {
    own->inputBytes = input, own->outputBytes = output, own->runs = runs;
    own->given = (char*)own->allocate(runs * input);
    own->results = (char*)own->allocate(runs * output);
    MSCCLPP_CUDATHROW(cudaMemcpy(own->given, inputs, runs * input, cudaMemcpyHostToDevice));
    size_t inputRange, outputRange;
    CUdeviceptr inputBase, outputBase;
    MSCCLPP_CUTHROW(cuMemGetAddressRange(&inputBase, &inputRange, (CUdeviceptr)own->input));
    MSCCLPP_CUTHROW(cuMemGetAddressRange(&outputBase, &outputRange, (CUdeviceptr)own->output));
    own->executor->impl_->setupExecutionContext(
        own->rank, (void*)inputBase, (void*)outputBase, input, output, own->input - (char*)inputBase,
        own->output - (char*)outputBase, inputRange, outputRange, *own->plan, own->executor->impl_->proxyService);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(own->stream));
  });
}

// Enqueue all runs, one after the other, with nothing between them but the copies of a run's data: a rank may be ahead.
// Kernels copy: an engine for copies might let that of one rank wait behind that of another.
int launch(Rank* own, int type, int packets, const unsigned* delays) {
  return guarded([&] {
    for (int run = 0; run < own->runs; run++) {
      fill(own->output, own->outputBytes, own->stream);
      copy(own->input, own->given + run * own->inputBytes, own->inputBytes, own->stream);
      if (delays[run]) delay(delays[run], own->stream);
      own->executor->execute(own->rank, own->input, own->output, own->inputBytes, own->outputBytes,
                             (mscclpp::DataType)type, *own->plan, own->stream, (mscclpp::PacketType)packets);
      copy(own->results + run * own->outputBytes, own->output, own->outputBytes, own->stream);
      MSCCLPP_CUDATHROW(cudaGetLastError());
    }
  });
}

// Wait for the runs; ended is 0 if they take longer than that.
int await_runs(Rank* own, double seconds, int* ended) {
  return guarded([&] {
    auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (*ended = 0; !*ended;) {
      cudaError_t state = cudaStreamQuery(own->stream);
      if (state == cudaErrorNotReady && std::chrono::steady_clock::now() > until) return;
      if (state != cudaErrorNotReady) MSCCLPP_CUDATHROW(state);
      *ended = state == cudaSuccess;
      if (!*ended) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
}

// The outputs of all runs; the memory for their data is free again.
int fetch(Rank* own, void* outputs) {
  return guarded([&] {
    MSCCLPP_CUDATHROW(cudaMemcpy(outputs, own->results, own->runs * own->outputBytes, cudaMemcpyDeviceToHost));
    for (char* pointer : {own->given, own->results}) {
      MSCCLPP_CUDATHROW(cudaFree(pointer));
      std::erase(own->allocations, (void*)pointer);
    }
  });
}

// Leave the plan and the other ranks.
int leave(Rank* own) {
  return guarded([&] {
    own->executor.reset();
    own->communicator.reset();
    new std::shared_ptr<mscclpp::Bootstrap>(own->bootstrap);
    for (void* pointer : own->allocations) MSCCLPP_CUDATHROW(cudaFree(pointer));
    MSCCLPP_CUDATHROW(cudaStreamDestroy(own->stream));
    delete own;
  });
}
}
