/* What happens to a waiter's thread and process: process TEST TELEMETRY-FOLDER. The exit status is 1 after the first
 * thing that is wrong. */
#define _GNU_SOURCE
#include <apus.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

/* Without /proc, nothing tells how the thread is scheduled. The waiter waits nevertheless. */
static void change_root(void) {
    apus_config config = configuration("chroot");
    apus_waiter *waiter;
    apus_done done;
    char jail[4096];
    config.mode = "backoff=50us";
    CHECK(apus_waiter_new(&config, &waiter) == 0);
    snprintf(jail, sizeof jail, "%s/jail", root);
    CHECK(mkdir(jail, 0755) == 0);
    if (chroot(jail) != 0 || chdir("/") != 0) {
        puts("skipped");
        exit(0);
    }
    for (int i = 0; i < 20; i++) CHECK(apus_wait(waiter, 0, &done) >= 0);
    CHECK(done.kind == APUS_SLEEP || done.kind == APUS_PAUSE);
    CHECK(apus_waiter_free(waiter) == 0);
}

static int status_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

/* A name that is not UTF-8 stops no wait, and no other process takes the instance for dead. */
static void rename_thread(void) {
    apus_config config = configuration("renamed");
    apus_waiter *waiter, *other;
    CHECK(prctl(PR_SET_NAME, "caf\xe9)") == 0);
    CHECK(apus_waiter_new(&config, &waiter) == 0);
    CHECK(apus_wait(waiter, 0, NULL) >= 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(apus_waiter_new(&config, &other) == APUS_E_CONFIG);
        /* All loops of one name belong to one process. */
        config.worker = 1;
        CHECK(apus_waiter_new(&config, &other) == APUS_E_CONFIG);
        CHECK(strstr(apus_error(), "give each process a name of its own") != NULL);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    CHECK(apus_waiter_free(waiter) == 0);
}

/* A program that replaces itself finds its name free. Here the first one was started by this program. */
static void replace(void) {
    static char *const again[] = {"process", "replaced", NULL, NULL};
    apus_config config = configuration("replaced");
    apus_waiter *waiter;
    char *arguments[4];
    memcpy(arguments, again, sizeof arguments);
    arguments[2] = (char *)(uintptr_t)root;
    CHECK(apus_waiter_new(&config, &waiter) == 0 && apus_wait(waiter, 0, NULL) >= 0);
    execv("/proc/self/exe", arguments);
    CHECK(0);
}

static void replaced(void) {
    apus_config config = configuration("replaced");
    apus_waiter *waiter, *second;
    CHECK(apus_waiter_new(&config, &waiter) == 0);
    CHECK(apus_waiter_new(&config, &second) == APUS_E_CONFIG);
    CHECK(strstr(apus_error(), "give each loop another config.worker") != NULL);
    CHECK(apus_waiter_free(waiter) == 0);
}

/* A child that is forked between the halves of a wait is told that the waiter is its parent's. */
static void fork_within(void) {
    apus_config config = configuration(NULL);
    apus_queue queue;
    apus_decision decision;
    apus_waiter *waiter;
    config.telemetry_root = NULL;
    config.wakes = APUS_WAKES_CALLER;
    memset(&queue, 0, sizeof queue);
    CHECK(apus_waiter_new(&config, &waiter) == 0);
    CHECK(apus_wait_begin(waiter, &queue, 1, &decision) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(apus_wait(waiter, 0, NULL) == APUS_E_THREAD);
        CHECK(apus_wait_end(waiter, APUS_POLL, 0, NULL) == APUS_E_THREAD);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    CHECK(apus_wait_end(waiter, APUS_POLL, 0, NULL) == APUS_POLL);
    CHECK(apus_waiter_free(waiter) == 0);
}

static const struct {
    const char *name;
    void (*test)(void);
} tests[] = {
    {"cancel", cancel},
    {"change_root", change_root},
    {"rename_thread", rename_thread},
    {"replace", replace},
    {"replaced", replaced},
    {"fork_within", fork_within},
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
