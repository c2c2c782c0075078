//! All kernels, for the host.

#define FOLDWIRE_HOST
#include "../kernels/primitives.cuh"

#include "../kernels/floats.cuh"

#include "../kernels/chunk.cuh"
#include "../kernels/chunk_reader.cuh"
#include "../kernels/chunk_writer.cuh"
#include "../kernels/fz_light.cuh"
#include "../kernels/range.cuh"
#include "../kernels/raw.cuh"

// Here, so that who uses the list links this file.
const shim::Kernel *shim::kernels;

#define ALL_TYPES(KERNELS)                                                                        \
    KERNELS(F32, f32, 1)                                                                          \
    KERNELS(F64, f64, 1)                                                                          \
    KERNELS(F16, f16, 1)                                                                          \
    KERNELS(BF16, bf16, 1)

ALL_TYPES(FZ_LIGHT_KERNELS)
ALL_TYPES(RANGE_KERNELS)
ALL_TYPES(RAW_KERNELS)
