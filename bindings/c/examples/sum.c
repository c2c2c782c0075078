/* A first program: four ranks, threads of this process, average an array and sum a number.
 *
 *     cc -std=c11 sum.c -o sum $(pkg-config --cflags --libs foldwire) -lm -pthread
 */
#include <foldwire.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 4
#define COUNT 1000000

static void check(fwResult result) {
    if (result != FW_SUCCESS) {
        fprintf(stderr, "%s: %s\n", fwGetErrorString(result), fwGetLastError());
        exit(1);
    }
}

static void *rank_main(void *argument) {
    fwComm_t comm = argument;
    int32_t rank;
    check(fwCommUserRank(comm, &rank));

    float *data = malloc(COUNT * sizeof *data);
    if (data == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < COUNT; i++) {
        data[i] = sinf((float)i * 1e-4f) + (float)rank;
    }
    /* Exact, or compressed within 1/10000 of the value range if that is faster. */
    fwPlan plan;
    check(fwPlanParse("auto,rel:1e-4", &plan));
    check(fwAllReduce(data, data, COUNT, FW_FLOAT32, FW_AVG, &plan, comm, NULL));
    fwReport report = FW_REPORT_INIT;
    check(fwCommReport(comm, &report));

    /* A single number is an array of one value. A NULL plan is exact. */
    double energy = 0;
    for (size_t i = 0; i < COUNT; i++) {
        energy += (double)data[i] * data[i];
    }
    check(fwAllReduce(&energy, &energy, 1, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
    printf("rank %d: %.4f, %.1f; %s by %s, %.1f MB sent as %.1f MB\n", rank, data[0], energy,
           report.schedule, report.codec, 1e-6 * (double)report.raw_bytes,
           1e-6 * (double)report.wire_bytes);
    free(data);
    check(fwCommDestroy(comm));
    return NULL;
}

int main(void) {
    fwComm_t comms[RANKS];
    pthread_t threads[RANKS];
    check(fwCommInitAll(comms, RANKS, NULL));
    for (int rank = 0; rank < RANKS; rank++) {
        if (pthread_create(&threads[rank], NULL, rank_main, comms[rank]) != 0) {
            return 1;
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        pthread_join(threads[rank], NULL);
    }
    return 0;
}
