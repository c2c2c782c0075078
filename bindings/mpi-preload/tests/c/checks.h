/* Values and checks for the test programs. */
#include <math.h>
#include <stdio.h>

static double tolerance;
static int rank, size, n_failed;

static void check(int good, const char *what) {
    if (!good) {
        n_failed++;
        fprintf(stderr, "rank %d: FAILED: %s\n", rank, what);
    }
}

static double value(int of, int i) { return (double)((i * 7 + of * 13) % 1000); }

static inline double sum(int i, int n) {
    double all = 0;
    for (int of = 0; of < n; of++) all += value(of, i);
    return all;
}

/* Returns whether `got` equals `want` within the errors of n operands. */
static inline int near(double got, double want, int n) { return fabs(got - want) <= tolerance * n; }
