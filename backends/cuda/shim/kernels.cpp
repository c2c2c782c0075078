//! All kernels, for the host.

#define FOLDWIRE_HOST
#include "../kernels/primitives.cuh"

#include "../kernels/floats.cuh"

#include "../kernels/payload.cuh"

#include "../kernels/chunk.cuh"
#include "../kernels/coded.cuh"

#include "../kernels/chunk_reader.cuh"
#include "../kernels/chunk_writer.cuh"
#include "../kernels/cuszp.cuh"
#include "../kernels/fz_light.cuh"
#include "../kernels/mpc.cuh"
#include "../kernels/range.cuh"
#include "../kernels/integers.cuh"
#include "../kernels/raw.cuh"
#include "../kernels/zfp_rate.cuh"

// Here, so that who uses the list links this file.
const shim::Kernel *shim::kernels;

#define ALL_TYPES(KERNELS)                                                                        \
    KERNELS(F32, f32)                                                                             \
    KERNELS(F64, f64)                                                                             \
    KERNELS(F16, f16)                                                                             \
    KERNELS(BF16, bf16)

#define WIDE_TYPES(KERNELS)                                                                       \
    KERNELS(F32, f32)                                                                             \
    KERNELS(F64, f64)

#define INTEGERS(KERNELS)                                                                         \
    KERNELS(I8, i8)                                                                               \
    KERNELS(U8, u8)                                                                               \
    KERNELS(I16, i16)                                                                             \
    KERNELS(U16, u16)                                                                             \
    KERNELS(I32, i32)                                                                             \
    KERNELS(U32, u32)                                                                             \
    KERNELS(I64, i64)                                                                             \
    KERNELS(U64, u64)

WIDE_TYPES(CUSZP_KERNELS)
ALL_TYPES(FZ_LIGHT_KERNELS)
WIDE_TYPES(MPC_KERNELS)
ALL_TYPES(PAYLOAD_KERNELS)
ALL_TYPES(RANGE_KERNELS)
ALL_TYPES(RAW_KERNELS)
INTEGERS(RAW_KERNELS)
WIDE_TYPES(ZFP_RATE_KERNELS)

#include "faults.hpp"
