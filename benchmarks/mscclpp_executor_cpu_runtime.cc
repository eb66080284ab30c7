// A CPU that stands in for a GPU: as much of CUDA's runtime as the executor calls. Memory of the GPU is memory, and a stream
// is a thread with a queue.

#include <cuda.h>
#include <mscclpp/fifo.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "mscclpp_executor_cpu.hpp"

namespace {

constexpr int kUnwritten = 0x77;  // of memory that nobody wrote

class Stream {
 public:
  Stream() : thread([this] { run(); }) {}

  void push(std::function<void()> work) {
    std::lock_guard guard(lock);
    waiting.push_back(std::move(work));
    changed.notify_all();
  }

  bool idle() {
    std::lock_guard guard(lock);
    return waiting.empty();
  }

  void synchronize() {
    std::unique_lock guard(lock);
    changed.wait(guard, [&] { return waiting.empty(); });
  }

  // The stream deletes itself after what it has to do.
  void end() {
    thread.detach();
    push(nullptr);
  }

 private:
  void run() {
    for (std::unique_lock guard(lock);;) {
      changed.wait(guard, [&] { return !waiting.empty(); });
      std::function<void()> work = waiting.front();
      guard.unlock();
      if (!work) break;
      work();
      guard.lock();
      waiting.pop_front();
      changed.notify_all();
    }
    delete this;
  }

  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;  // the first of them is being done
  std::thread thread;
};

Stream* of(cudaStream_t stream) { return (Stream*)stream; }

std::mutex allocating;
std::map<uintptr_t, size_t> sizes;  // of what is allocated, by its address

void* allocate(size_t bytes) {
  void* made = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  std::memset(made, kUnwritten, bytes);
  std::lock_guard guard(allocating);
  sizes[(uintptr_t)made] = bytes;
  return made;
}

void release(void* pointer) {
  std::lock_guard guard(allocating);
  sizes.erase((uintptr_t)pointer);
  std::free(pointer);
}

// Eight bytes are a signal, which others poll.
void copy_bytes(void* target, const void* source, size_t bytes) {
  if (bytes != sizeof(uint64_t)) {
    std::memcpy(target, source, bytes);
    return;
  }
  uint64_t value;
  std::memcpy(&value, source, bytes);
  __atomic_store_n((uint64_t*)target, value, __ATOMIC_RELEASE);
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) { of(stream)->push(std::move(work)); }

// A proxy polls without an end: let others run meanwhile.
extern "C" bool __real__ZN7mscclpp4Fifo4pollERNS_12ProxyTriggerE(mscclpp::Fifo*, mscclpp::ProxyTrigger&);
extern "C" bool __wrap__ZN7mscclpp4Fifo4pollERNS_12ProxyTriggerE(mscclpp::Fifo* fifo, mscclpp::ProxyTrigger& trigger) {
  bool found = __real__ZN7mscclpp4Fifo4pollERNS_12ProxyTriggerE(fifo, trigger);
  if (!found) std::this_thread::yield();
  return found;
}

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "refused by a CPU"; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 0, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
  *found = {};
  std::strcpy(found->name, "a CPU");
  found->multiProcessorCount = 1 << 16;  // a threadblock is a thread, so all are there at once
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** made, size_t bytes) { return *made = allocate(bytes), cudaSuccess; }
cudaError_t cudaHostAlloc(void** made, size_t bytes, unsigned) { return *made = allocate(bytes), cudaSuccess; }
cudaError_t cudaFree(void* pointer) { return release(pointer), cudaSuccess; }
cudaError_t cudaFreeHost(void* pointer) { return release(pointer), cudaSuccess; }

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  return copy_bytes(target, source, bytes), cudaSuccess;
}

// What comes from the host is read at once, as CUDA does with memory that is not pinned.
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyHostToDevice) {
    enqueue(stream, [=] { copy_bytes(target, source, bytes); });
    return cudaSuccess;
  }
  std::string read((const char*)source, bytes);
  enqueue(stream, [=] { copy_bytes(target, read.data(), bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(target, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned) {
  return *made = (cudaStream_t) new Stream, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return of(stream)->end(), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return of(stream)->synchronize(), cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return of(stream)->idle() ? cudaSuccess : cudaErrorNotReady; }

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaErrorNotSupported; }

CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "refused by a CPU", CUDA_SUCCESS; }

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr) {
  return *(int*)value = 0, CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr place) {
  std::lock_guard guard(allocating);
  auto next = sizes.upper_bound(place);
  if (next == sizes.begin() || place >= std::prev(next)->first + std::prev(next)->second) return CUDA_ERROR_NOT_FOUND;
  *begin = std::prev(next)->first, *bytes = std::prev(next)->second;
  return CUDA_SUCCESS;
}

// Memory that is mapped, shared between processes, or summed by switches.
CUresult not_there() { return CUDA_ERROR_NOT_SUPPORTED; }
#define NOT_THERE(name) asm(".globl " #name "\n" #name " = not_there");
NOT_THERE(cuMemAddressFree)
NOT_THERE(cuMemAddressReserve)
NOT_THERE(cuMemCreate)
NOT_THERE(cuMemExportToShareableHandle)
NOT_THERE(cuMemGetAllocationGranularity)
NOT_THERE(cuMemImportFromShareableHandle)
NOT_THERE(cuMemMap)
NOT_THERE(cuMemRelease)
NOT_THERE(cuMemRetainAllocationHandle)
NOT_THERE(cuMemSetAccess)
NOT_THERE(cuMemUnmap)
NOT_THERE(cuMulticastAddDevice)
NOT_THERE(cuMulticastBindAddr)
NOT_THERE(cuMulticastCreate)
NOT_THERE(cuMulticastGetGranularity)
NOT_THERE(cuMulticastUnbind)

// What mscclpp_executor_gpu.cu has for a GPU.
int resident_blocks(int) { return 1; }

void delay(unsigned microseconds, cudaStream_t stream) {
  enqueue(stream, [=] { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); });
}

void fill(void* target, size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(target, 0xA5, bytes); });
}

void copy(void* target, const void* source, size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(target, source, bytes); });
}
}
