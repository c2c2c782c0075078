/* Averages an array over processes. Each process is one rank.
 *
 *     cc -std=c11 processes.c -o processes $(pkg-config --cflags --libs foldwire)
 *     export FOLDWIRE_JOB=$$ FOLDWIRE_SIZE=3
 *     for rank in 0 1 2; do FOLDWIRE_RANK=$rank ./processes & done; wait
 *
 * Slurm, torchrun, mpirun and `foldwire launch` set such variables themselves.
 */
#include <foldwire.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000000

static void check(fwResult result) {
    if (result != FW_SUCCESS) {
        fprintf(stderr, "%s: %s\n", fwGetErrorString(result), fwGetLastError());
        exit(1);
    }
}

int main(void) {
    fwComm_t comm;
    int32_t rank, size;
    check(fwCommInitEnv(&comm, NULL));
    check(fwCommUserRank(comm, &rank));
    check(fwCommCount(comm, &size));

    float *data = malloc(COUNT * sizeof *data);
    if (data == NULL) {
        return 1;
    }
    for (size_t i = 0; i < COUNT; i++) {
        data[i] = (float)rank + 1e-6f * (float)i;
    }
    fwPlan plan;
    check(fwPlanParse("rel:1e-4", &plan));
    check(fwAllReduce(data, data, COUNT, FW_FLOAT32, FW_AVG, &plan, comm, NULL));
    fwReport report = FW_REPORT_INIT;
    check(fwCommReport(comm, &report));
    printf("rank %d of %d: %.2f; within %.1e, %.1f MB sent as %.1f MB\n", rank, size, data[0],
           report.worst_case, 1e-6 * (double)report.raw_bytes, 1e-6 * (double)report.wire_bytes);
    free(data);
    check(fwCommDestroy(comm));
    return 0;
}
