// MSCCL++'s kernels, included as they are, compiled for a CPU.
//
// A threadblock is a thread of the operating system, so that threadblocks, ranks and proxies overlap as they please. Its
// threads take turns in it: a thread runs until it waits, in an order drawn anew each time, so a thread may be far ahead of
// the others of its block wherever the program does not make them meet. Of the sources those lines are compiled that are
// neither CUDA's assembler nor AMD's: what goes between threads uses the compiler's atomic operations.

#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "mscclpp_executor_cpu.hpp"

// What makes code a kernel, in place of mscclpp/device.hpp.
#define MSCCLPP_DEVICE_HPP_
#define MSCCLPP_DEVICE_COMPILE
#define MSCCLPP_INLINE inline
#define MSCCLPP_DEVICE_INLINE inline
#define MSCCLPP_HOST_DEVICE_INLINE inline
#undef __shared__
#define __shared__ __thread
#define __launch_bounds__(...)
#define __builtin_nontemporal_store(value, place) __atomic_store_n(place, value, __ATOMIC_RELAXED)
#define DEBUG_BUILD  // check what kernels assert

static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim;
static void pass_turn();
static void __syncthreads();
unsigned __vadd4(unsigned, unsigned), __vminu4(unsigned, unsigned);  // of bytes, which these plans do not sum

// A thread that polls lets others run. How often it may poll is not limited.
#include <mscclpp/poll_device.hpp>
#undef POLL_MAYBE_JAILBREAK
#define POLL_MAYBE_JAILBREAK(condition, most) \
  while (condition) pass_turn()
#undef OR_POLL_MAYBE_JAILBREAK
#define OR_POLL_MAYBE_JAILBREAK(first, second, most) \
  while ((first) && (second)) pass_turn()

#define MSCCLPP_DEVICE_HIP  // signals have lines for AMD, but none for others; they are plain C++
#include <mscclpp/semaphore_device.hpp>
#undef MSCCLPP_DEVICE_HIP

#include "execution_kernel.hpp"

namespace mscclpp {
__thread int4 sharedMem[sizeof(DeviceExecutionPlan) / sizeof(int4)];
}

namespace {

constexpr int kThreads = 16;
// Threads of a threadblock: as many as an operation has semaphores at most, of which each needs a thread of its own.
constexpr size_t kStackBytes = 1 << 16;

struct Block {
  ucontext_t turns, threads[kThreads];
  std::unique_ptr<char[]> stacks{new char[kThreads * kStackBytes]};
  std::function<void()> kernel;
  int running = kThreads, arrived = 0, meetings = 0;
  bool ended[kThreads] = {};
};
thread_local Block* block;

void begin_thread() {
  block->kernel();
  block->ended[threadIdx.x] = true;
  block->running--;
}

// Run a kernel's threadblock to its end.
void run_block(int number, unsigned seed, std::function<void()> kernel) {
  Block own;
  own.kernel = std::move(kernel);
  block = &own;
  blockIdx = {(unsigned)number, 0, 0};
  blockDim = dim3(kThreads);
  std::minstd_rand random(seed);
  int order[kThreads];
  for (int i = 0; i < kThreads; i++) {
    order[i] = i;
    getcontext(&own.threads[i]);
    own.threads[i].uc_stack.ss_sp = &own.stacks[i * kStackBytes];
    own.threads[i].uc_stack.ss_size = kStackBytes;
    own.threads[i].uc_link = &own.turns;
    makecontext(&own.threads[i], begin_thread, 0);
  }
  while (own.running) {
    std::shuffle(order, order + kThreads, random);
    for (int i : order) {
      threadIdx.x = i;
      if (!own.ended[i]) swapcontext(&own.turns, &own.threads[i]);
    }
    std::this_thread::yield();
  }
}

}  // namespace

static void pass_turn() {
  unsigned own = threadIdx.x;
  swapcontext(&block->threads[own], &block->turns);
  threadIdx.x = own;
}

static void __syncthreads() {
  int meeting = block->meetings;
  if (++block->arrived == kThreads) block->arrived = 0, block->meetings++;
  while (block->meetings == meeting) pass_turn();
}

namespace mscclpp {

template <typename T, typename Packet, bool ReuseScratch>
static void launch(int rank, int blocks, void* input, void* output, void* scratch, uint32_t scratchOffset,
                   uint32_t scratchChunk, DeviceExecutionPlan* plan, DeviceSemaphore* semaphores, uint32_t firstMemory,
                   cudaStream_t stream, uint32_t flag) {
  enqueue(stream, [=] {
    std::vector<std::thread> threads;
    for (int number = 0; number < blocks; number++) {
      threads.emplace_back(run_block, number, 1 + number + 64 * (rank + 64 * flag), [=] {
        executionKernel<T, Packet, ReuseScratch>(rank, (T*)input, (T*)output, (T*)scratch, scratchOffset, scratchChunk,
                                                 plan, semaphores, firstMemory, flag);
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

// In place of execution_kernel.cu, which launches the same kernel with <<<>>>.
template <typename Packet, bool ReuseScratch>
void ExecutionKernel::launchKernel(int rank, int blocks, int, void* input, void* output, void* scratch,
                                   uint32_t scratchOffset, uint32_t scratchChunk, DataType type,
                                   DeviceExecutionPlan* plan, DeviceSemaphore* semaphores, uint32_t firstMemory,
                                   uint32_t, cudaStream_t stream, uint32_t flag) {
  auto chosen = type == DataType::INT32     ? launch<int32_t, Packet, ReuseScratch>
                : type == DataType::FLOAT32 ? launch<float, Packet, ReuseScratch>
                                            : launch<half, Packet, ReuseScratch>;
  chosen(rank, blocks, input, output, scratch, scratchOffset, scratchChunk, plan, semaphores, firstMemory, stream, flag);
}

#define FOR(PACKET, REUSE)                                                                                            \
  template void ExecutionKernel::launchKernel<PACKET, REUSE>(int, int, int, void*, void*, void*, uint32_t, uint32_t,  \
                                                             DataType, DeviceExecutionPlan*, DeviceSemaphore*,        \
                                                             uint32_t, uint32_t, cudaStream_t, uint32_t);
FOR(LL16Packet, true)
FOR(LL8Packet, true)
FOR(LL16Packet, false)
FOR(LL8Packet, false)

}  // namespace mscclpp
