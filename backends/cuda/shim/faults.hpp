//! Kernels that do what kernels must not do, each by its number, so that tests see the reports.

#pragma once

KERNEL(fault, 64, 1, (u8 *out, u64 which), {
    SHARED(u32, numbers, 64);
    SHARED(u32, behind, 64);
    const u32 thread = thread_id();
    if (which == 0) {
        // Nothing wrong: a sum that goes through shared memory, and a rotation in each warp.
        numbers.put(thread, thread);
        barrier();
        const u32 other = numbers.get((thread + 1) % 64);
        store<u32>(out + 4 * thread, other + shuffle(thread, (lane_id() + 1) % WARP));
    } else if (which == 1 && thread != 5) {
        barrier();
    } else if (which == 2 && thread % 2 == 0) {
        ballot(true);
    } else if (which == 3) {
        store<u8>(out + 256 + thread, 1);
    } else if (which == 4) {
        store<u32>(out + 2, load<u32>(out));
    } else if (which == 5) {
        store<u32>(out, numbers.get(thread));
    } else if (which == 6) {
        numbers.put(thread, 1);
        store<u32>(out + 4 * thread, numbers.get(thread / 2));
    } else if (which == 7) {
        numbers.put(64, 1);
    } else if (which == 8 && warp_id() == 1) {
        barrier();
    } else if (which == 9) {
        behind.from(32).put(32, 1);
    } else if (which == 10) {
        numbers.as<u8>().put(256, 1);
    }
})
