/* Joins from the environment twice, and makes a unique id. tests/all/processes.rs sets a variable
 * that nothing reads. */
#include "check.h"

int main(void) {
    for (int i = 0; i < 2; i++) {
        fwComm_t comm;
        fwUniqueId id;
        OK(fwCommInitEnv(&comm, NULL));
        OK(fwGetUniqueId(&id));
        OK(fwCommDestroy(comm));
    }
    printf("%d checks\n", n_checks);
    return 0;
}
