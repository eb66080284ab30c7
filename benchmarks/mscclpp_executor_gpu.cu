// MSCCL++'s kernels, included as they are, with what must be asked of them in their file; and kernels that wait, fill and copy.

#include "execution_kernel.cu"

static __global__ void waiting(unsigned microseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < 1000ull * microseconds);
}

static __global__ void filling(int4* target, size_t words) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
    target[i] = make_int4(0xA5A5A5A5, 0xA5A5A5A5, 0xA5A5A5A5, 0xA5A5A5A5);
  }
}

static __global__ void copying(int4* target, const int4* source, size_t words) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) target[i] = source[i];
}

// Bytes are multiples of 16, as a plan's buffers are.
extern "C" void fill(void* target, size_t bytes, cudaStream_t stream) {
  filling<<<4, 256, 0, stream>>>((int4*)target, bytes / sizeof(int4));
}

extern "C" void copy(void* target, const void* source, size_t bytes, cudaStream_t stream) {
  copying<<<4, 256, 0, stream>>>((int4*)target, (const int4*)source, bytes / sizeof(int4));
}

extern "C" void delay(unsigned microseconds, cudaStream_t stream) { waiting<<<1, 1, 0, stream>>>(microseconds); }

// Threadblocks of the executor that one multiprocessor holds at once.
extern "C" int resident_blocks(int threads) {
  int blocks = 0;
  auto kernel = mscclpp::executionKernel<int32_t, mscclpp::LL16Packet, false>;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, sizeof(mscclpp::DeviceExecutionPlan));
  return blocks;
}
