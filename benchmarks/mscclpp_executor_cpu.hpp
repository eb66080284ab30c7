// What goes into a stream of a CPU that stands in for a GPU.

#pragma once

#include <cuda_runtime.h>

#include <functional>

// Let a stream do this after all that it has still to do.
void enqueue(cudaStream_t stream, std::function<void()> work);
