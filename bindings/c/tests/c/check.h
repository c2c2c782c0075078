/* Checks for the programs in this folder. */
#ifndef CHECK_H
#define CHECK_H
#define _POSIX_C_SOURCE 200809L

#include <foldwire.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3

static _Atomic int n_checks;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        n_checks++;                                                                                \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,         \
                    fwGetLastError());                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == FW_SUCCESS)
#define FAILS(code, call)                                                                          \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        CHECK(strlen(fwGetLastError()) > 0);                                                       \
    } while (0)

/* A rank of a test. */
typedef struct {
    fwComm_t comm;
    int rank;
} Rank;

#endif
