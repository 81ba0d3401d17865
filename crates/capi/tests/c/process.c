/* What happens to a waiter's thread and process: process TEST TELEMETRY-FOLDER. The exit status is 1 after the first
 * thing that is wrong, and 77 if the test cannot run here. */
#define _GNU_SOURCE
#include <apus.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, apus_error());      \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static const char *root;

static apus_config configuration(const char *name) {
    apus_config config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.name = name;
    config.telemetry_root = root;
    return config;
}

/* Calls everything with a cancellation pending, which would take effect at the first cancellation point. */
static void *cancelled(void *finished) {
    static const char *const modes[] = {"interrupt", "backoff=50us", "adaptive"};
    static const char *const paths[] = {"/nowhere", "/dev/null"};
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    CHECK(pthread_cancel(pthread_self()) == 0);
    for (int i = 0; i < 6; i++) {
        apus_config config = configuration("cancelled");
        apus_waiter *waiter;
        apus_policy *policy;
        config.mode = modes[i / 2];
        config.longest_block_ns = 100000;
        CHECK(apus_waiter_new(&config, &waiter) == 0);
        if (i % 2 == 0) CHECK(apus_watch(waiter, pair[0]) == 0);
        for (int n = 0; n < 20; n++) CHECK(apus_wait(waiter, n == 3, NULL) >= 0);
        CHECK(apus_waiter_free(waiter) == 0);
        memset(&config, 0, sizeof config);
        config.size = sizeof config;
        config.profile_path = paths[i % 2];
        CHECK(apus_policy_new(&config, &policy) == APUS_E_PROFILE);
    }
    *(int *)finished = 1;
    pthread_testcancel();
    return NULL;
}

static void cancel(void) {
    pthread_t thread;
    void *result;
    int finished = 0;
    CHECK(pthread_create(&thread, NULL, cancelled, &finished) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(finished && result == PTHREAD_CANCELED);
}

static const struct {
    const char *name;
    void (*test)(void);
} tests[] = {
    {"cancel", cancel},
};

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    root = argv[2];
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(argv[1], tests[i].name) != 0) continue;
        tests[i].test();
        puts("ok");
        return 0;
    }
    return 2;
}
