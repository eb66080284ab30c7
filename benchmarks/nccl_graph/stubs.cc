// What NCCL's src/graph needs of the rest of NCCL to read files and search graphs on a machine without GPUs. Symbols
// that this never calls (device queries, network plugins, bootstrap) stay undefined: the linker is told to ignore them.

#include "comm.h"
#include "graph.h"
#include "nvmlwrap.h"
#include "os.h"
#include "transport.h"
#include "utils.h"
#include <cstdarg>
#include <cstdlib>
#include <cstring>

// Debug output: warnings to stderr, the rest where NCCL_DEBUG=INFO asks for it.
int ncclDebugLevel = getenv("NCCL_DEBUG") ? NCCL_LOG_INFO : NCCL_LOG_WARN;
uint64_t ncclDebugMask = ~0ull;
FILE* ncclDebugFile = stderr;
thread_local int ncclDebugNoWarn = 0;

void ncclDebugLogInternal(ncclDebugLogLevel level, unsigned long, const char*, const char*, int, const char* format, ...) {
  if (level > ncclDebugLevel || (level == NCCL_LOG_WARN && ncclDebugNoWarn)) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

// Names as in NCCL's init.cc.
const char* ncclFuncStr[NCCL_NUM_FUNCTIONS] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
const char* ncclAlgoStr[NCCL_NUM_ALGORITHMS] = {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
const char* ncclProtoStr[NCCL_NUM_PROTOCOLS] = {"ll", "ll128", "simple"};

// Parameters come from the environment, as in NCCL.
const char* ncclGetEnv(const char* name) { return getenv(name); }
int64_t ncclLoadParam(const char* name, int64_t otherwise, int64_t, int64_t* cache, int8_t*) {
  const char* text = getenv(name);
  return *cache = text ? strtoll(text, nullptr, 0) : otherwise;
}
int64_t ncclParamWorkArgsBytes() { return 4096; }

// Bus ids: hexadecimal digits, whatever stands between them.
ncclResult_t busIdToInt64(const char* text, int64_t* id) {
  for (*id = 0; *text; text++)
    if (isxdigit(*text)) *id = *id * 16 + (isdigit(*text) ? *text - '0' : tolower(*text) - 'a' + 10);
  return ncclSuccess;
}
uint64_t getHostHash() { return 1; }

// All pairs of GPUs may use peer-to-peer copies.
ncclNvmlDevicePairInfo ncclNvmlDevicePairs[ncclNvmlMaxDevices][ncclNvmlMaxDevices];
ncclResult_t ncclNvmlEnsureInitialized() { return ncclSuccess; }
static ncclResult_t connects(int* yes, ncclComm*, ncclTopoGraph*, ncclPeerInfo*, ncclPeerInfo*) {
  *yes = 1;
  return ncclSuccess;
}
static ncclTransport everywhere = {"any", connects, {}, {}};
ncclTransport* ncclTransports[NTRANSPORTS + 1] = {&everywhere, &everywhere, &everywhere, &everywhere};

// CPU affinity.
void ncclOsCpuZero(ncclAffinity& set) { CPU_ZERO(&set); }
void ncclOsCpuSet(ncclAffinity& set, int cpu) { CPU_SET(cpu, &set); }
int ncclOsCpuCount(const ncclAffinity& set) { return CPU_COUNT(&set); }
