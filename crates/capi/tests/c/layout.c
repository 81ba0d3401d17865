/* Prints what the C compiler makes of apus.h: a line "struct SIZE", "struct.field OFFSET" or "CONSTANT VALUE" each. */
#include "apus.h"

#include <inttypes.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define VALUE(name) \
    do { \
        if ((name) < 0) \
            printf(#name " %lld\n", (long long)(name)); \
        else \
            printf(#name " %" PRIu64 "\n", (uint64_t)(name)); \
    } while (0)

int main(void) {
#include "list.inc"
    return 0;
}
