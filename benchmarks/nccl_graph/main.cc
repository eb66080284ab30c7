// What NCCL's own graph code makes of a topology file and a graph file, on a machine without GPUs.
//
//   nccl_graph TOPOLOGY.xml GRAPH.xml|- SERVERS [BYTES...]
//
// All servers are alike. With "-" NCCL searches by itself. Prints one JSON object: the graphs of a server (ids as NCCL
// numbers them), the rings that NCCL connects between servers, and for each size in bytes the algorithm and protocol
// that NCCL's tuning chooses for each collective, with the time that it expects in microseconds.

#include "comm.h"
#include "graph.h"
#include "topo.h"
#include "transport.h"
#include "xml.h"
#include <cstdio>
#include <string>
#include <vector>

#define CHECK(call) \
  do { \
    ncclResult_t result = (call); \
    if (result != ncclSuccess) { \
      fprintf(stderr, "%s: NCCL error %d\n", #call, result); \
      exit(1); \
    } \
  } while (0)

static ncclTopoGraph ring, tree, chain, direct, nvls;
static ncclTopoGraph* byAlgorithm[NCCL_NUM_ALGORITHMS] = {&tree, &ring, &direct, &chain, &nvls, &nvls, &tree};

// The system of one server, with the ranks that its GPUs have there, as ncclTopoGetSystem completes the file.
static ncclTopoSystem* readServer(const char* path, int server) {
  ncclXml* xml;
  CHECK(xmlAlloc(&xml, NCCL_TOPO_XML_MAX_NODES));
  CHECK(ncclTopoGetXmlFromFile(path, xml, 1));
  std::vector<ncclXmlNode*> gpus;
  for (int i = 0; i < xml->maxIndex; i++) {
    ncclXmlNode* node = xml->nodes + i;
    if (!strcmp(node->name, "cpu")) CHECK(xmlSetAttrLong(node, "host_hash", 1));
    if (!strcmp(node->name, "gpu")) gpus.push_back(node);
    if (!strcmp(node->name, "gpu") || !strcmp(node->name, "net")) CHECK(xmlSetAttrInt(node, "gdr", 1));
  }
  for (ncclXmlNode* gpu : gpus) {
    int dev;
    CHECK(xmlGetAttrInt(gpu, "dev", &dev));
    CHECK(xmlSetAttrInt(gpu, "rank", server * (int)gpus.size() + dev));
  }
  ncclTopoSystem* system;
  CHECK(ncclTopoGetSystemFromXml(xml, &system, 1));
  free(xml);
  return system;
}

static void compute(ncclTopoSystem* system, ncclTopoGraph* graph, int id, int pattern, int least, int most) {
  memset(graph, 0, sizeof(*graph));
  graph->id = id;
  graph->pattern = pattern;
  graph->minChannels = least;
  graph->maxChannels = most;
  CHECK(ncclTopoCompute(system, graph));
}

// The steps of NCCL's initTransportsRank, in its order, as far as they concern graphs.
static void computeGraphs(ncclComm* comm) {
  CHECK(ncclTopoComputePaths(comm->topo, comm));
  CHECK(ncclTopoTrimSystem(comm->topo, comm));
  CHECK(ncclTopoComputePaths(comm->topo, comm));
  CHECK(ncclTopoSearchInit(comm->topo));
  CHECK(ncclTopoComputeCommCPU(comm));
  CHECK(ncclTopoGetCompCap(comm->topo, &comm->minCompCap, &comm->maxCompCap));
  comm->nvlsSupport = comm->topo->nodes[NVS].count && comm->minCompCap >= 90 && comm->topo->nodes[GPU].count > 1;
  compute(comm->topo, &ring, 0, NCCL_TOPO_PATTERN_RING, 1, MAXCHANNELS / 2);
  compute(comm->topo, &tree, 1, NCCL_TOPO_PATTERN_BALANCED_TREE, ring.nChannels, ring.nChannels);
  if (comm->nvlsSupport) compute(comm->topo, &nvls, 3, NCCL_TOPO_PATTERN_NVLS, 1, MAXCHANNELS);
  comm->nChannels = ring.nChannels = tree.nChannels = std::min(ring.nChannels, tree.nChannels);
  if (nvls.nChannels == 0) comm->nvlsSupport = 0;
}

static void printGraph(const char* name, const ncclTopoGraph& g, ncclTopoSystem* system, const char* end) {
  int gpus = system->nodes[GPU].count;
  printf(" \"%s\": {\"pattern\": %d, \"crossnic\": %d, \"speedintra\": %g, \"speedinter\": %g, \"typeintra\": \"%s\", "
         "\"typeinter\": \"%s\", \"channels\": [", name, g.pattern, g.crossNic, g.bwIntra, g.bwInter,
         topoPathTypeStr[g.typeIntra], topoPathTypeStr[g.typeInter]);
  for (int c = 0; c < g.nChannels; c++) {
    printf("%s{\"gpus\": [", c ? ", " : "");
    for (int i = 0; i < (g.id == 3 ? 1 : gpus); i++) printf("%s%d", i ? ", " : "", g.intra[c * gpus + i] % gpus);
    printf("], \"nets\": [");
    if (system->inter) printf("%ld, %ld", (long)g.inter[2 * c], (long)g.inter[2 * c + 1]);
    printf("]}");
  }
  printf("]}%s\n", end);
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "usage: nccl_graph TOPOLOGY.xml GRAPH.xml|- SERVERS [BYTES...]\n"), 2;
  if (strcmp(argv[2], "-")) setenv("NCCL_GRAPH_FILE", argv[2], 1);
  int servers = atoi(argv[3]);

  ncclComm* comm = (ncclComm*)calloc(1, sizeof(ncclComm));
  comm->topo = readServer(argv[1], 0);
  int gpus = comm->topo->nodes[GPU].count, ranks = comm->nRanks = gpus * servers;
  comm->nNodes = servers;
  comm->sharedRes = (ncclSharedResources*)calloc(1, sizeof(ncclSharedResources));
  comm->sharedRes->owner = comm;
  comm->config.maxCTAs = MAXCHANNELS;
  comm->config.minCTAs = 1;
  comm->peerInfo = (ncclPeerInfo*)calloc(ranks, sizeof(ncclPeerInfo));
  comm->rankToNode = (int*)calloc(ranks, sizeof(int));
  comm->nodeRanks = (ncclNodeRanks*)calloc(servers, sizeof(ncclNodeRanks));
  for (int r = 0; r < ranks; r++) {
    comm->rankToNode[r] = r / gpus;
    comm->nodeRanks[r / gpus].localRanks++;
    comm->peerInfo[r].rank = r;
    comm->peerInfo[r].hostHash = 1 + r / gpus;
  }
  comm->localRanks = comm->maxLocalRanks = comm->minLocalRanks = gpus;

  // each rank says where it is in its server's graphs; rank 0 then connects all
  std::vector<ncclTopoRanks> found(ranks);
  std::vector<ncclTopoRanks*> all;
  std::vector<int> first, patterns;
  for (int s = servers - 1; s >= 0; s--) {
    if (s < servers - 1 || servers == 1) free(comm->topo);
    comm->topo = readServer(argv[1], s);
    comm->node = s;
    comm->rank = s * gpus;
    computeGraphs(comm);
    for (comm->rank = s * gpus + gpus - 1; ; comm->rank--) {
      CHECK(ncclTopoPreset(comm, byAlgorithm, &found[comm->rank]));
      if (comm->rank == s * gpus) break;
    }
  }
  for (ncclTopoRanks& own : found) all.push_back(&own);
  for (int s = 0; s < servers; s++) {
    first.push_back(found[s * gpus].ringRecv[0]);
    patterns.push_back(tree.pattern);
  }
  comm->maxTreePattern = tree.pattern;
  printf("{\"release\": \"%d.%d.%d\", \"gpus\": %d, \"servers\": %d, \"compute_capability\": %d,\n", NCCL_MAJOR, NCCL_MINOR,
         NCCL_PATCH, gpus, servers, comm->minCompCap);
  printGraph("ring", ring, comm->topo, ",");
  printGraph("tree", tree, comm->topo, ",");
  printGraph("nvls", nvls, comm->topo, ",");
  std::vector<int> rings(ranks * MAXCHANNELS);
  CHECK(ncclTopoPostset(comm, first.data(), patterns.data(), all.data(), rings.data(), byAlgorithm, nullptr));
  printf(" \"channels\": %d, \"rings\": [", comm->nChannels);
  for (int c = 0; c < ring.nChannels; c++) {
    printf("%s[", c ? ", " : "");
    for (int r = 0; r < ranks; r++) printf("%s%d", r ? ", " : "", rings[c * ranks + r]);
    printf("]");
  }
  CHECK(ncclTopoInitTunerConstants(comm));
  CHECK(ncclTopoTuneModel(comm, comm->minCompCap, comm->maxCompCap, byAlgorithm));
  printf("],\n \"choices\": {");
  for (int kind = 0; kind < NCCL_NUM_FUNCTIONS; kind++) {
    printf("%s\"%s\": [", kind ? ", " : "", ncclFuncStr[kind]);
    for (int i = 4; i < argc; i++) {
      size_t bytes = strtoull(argv[i], nullptr, 10);
      float best = -1, time;
      int algorithm = 0, protocol = 0;
      for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++) {
        bool multicast = a == NCCL_ALGO_NVLS || a == NCCL_ALGO_NVLS_TREE;
        if (multicast && !comm->nvlsSupport) continue;
        for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
          CHECK(ncclTopoGetAlgoTime(comm, kind, a, p, bytes, 1, &time));
          if (time >= 0 && (best < 0 || time < best)) best = time, algorithm = a, protocol = p;
        }
      }
      printf("%s[%zu, \"%s\", \"%s\", %g]", i > 4 ? ", " : "", bytes, ncclAlgoStr[algorithm], ncclProtoStr[protocol], best);
    }
    printf("]");
  }
  printf("}}\n");
  return 0;
}
