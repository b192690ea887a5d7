// Aliases between the emulated NPU and the CPU, and random generators.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace npu {

// A CPU tensor over the same memory; the memory lives as long as either.
at::Tensor to_cpu_alias(const at::Tensor& tensor);
// A tensor on `chip` over the memory of a CPU tensor, counted as the chip's.
at::Tensor adopt_from_cpu(const at::Tensor& host, int chip);
// Whether non-blocking uploads arrive only when the queue is waited for (fault `h2d-race`).
void set_upload_race(bool on);

const at::Generator& default_generator(int chip);
at::Generator new_generator(int chip);
// The CPU generator behind one of the NPU.
at::Generator host_generator(const at::Generator& generator);

}  // namespace npu
