"""Averages an array over four ranks, threads of this process, within an error bound."""

import numpy as np

import foldwire


def program(comm):
    field = np.sin(np.arange(1_000_000, dtype=np.float32) * 1e-4) + comm.rank
    total = comm.all_reduce(field, "avg", bound="rel:1e-4")
    report = comm.report
    return (f"rank {comm.rank} of {comm.size}: {total.mean():.4f} on average, "
            f"{report['raw_bytes'] / 1e6:.1f} MB sent as {report['wire_bytes'] / 1e6:.1f} MB")


if __name__ == "__main__":
    print(foldwire.run(4, program)[0])
