/* Orders the files of a folder that has f0, f1, ... as many as the second argument says; "gone" is not there. */
#include "seekless_order.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

_Static_assert(sizeof(struct seekless_order_item) == 2 * sizeof(void *) + 24, "the layout that Rust has");

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char path[4096];

static const char *file(const char *folder, int number) {
    snprintf(path, sizeof path, "%s/f%d", folder, number);
    return path;
}

static void bad_calls(void) {
    struct seekless_order_item item;
    CHECK(seekless_order_set(NULL, SEEKLESS_ORDER_WINDOW, 1) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_add(NULL, "a") == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_next(NULL, &item) == SEEKLESS_ORDER_E_USAGE);
    seekless_order_free(NULL);
    CHECK(seekless_order_how(3) == NULL && seekless_order_how(-1) == NULL);
    seekless_order *order = seekless_order_new();
    CHECK(seekless_order_next(order, NULL) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_add(order, NULL) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_set(order, 0, 1) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_set(order, SEEKLESS_ORDER_BY, 3) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_set(order, SEEKLESS_ORDER_FOLDERS, 2) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_set(order, SEEKLESS_ORDER_BATCH, 0) == SEEKLESS_ORDER_E_USAGE);
    CHECK(seekless_order_next(order, &item) == SEEKLESS_ORDER_END && item.path == NULL);
    CHECK(seekless_order_set(order, SEEKLESS_ORDER_WINDOW, 0) == SEEKLESS_ORDER_E_USAGE);
    seekless_order_free(order);
}

int main(int argc, char **argv) {
    CHECK(argc == 3 && seekless_order_abi() == SEEKLESS_ORDER_ABI);
    const char *folder = argv[1];
    int files = atoi(argv[2]), next = 0, turns = 0, items = 0, failures = 0;
    char *seen = calloc(files, 1);
    bad_calls();

    seekless_order *order = seekless_order_new();
    CHECK(seekless_order_set(order, SEEKLESS_ORDER_WINDOW, 1 << 20) == SEEKLESS_ORDER_DONE);
    CHECK(seekless_order_set(order, SEEKLESS_ORDER_BATCH, 16) == SEEKLESS_ORDER_DONE);
    CHECK(seekless_order_add(order, "gone") == SEEKLESS_ORDER_DONE);
    while (next < files) {
        int added = SEEKLESS_ORDER_DONE;
        while (next < files && added == SEEKLESS_ORDER_DONE)
            added = seekless_order_add(order, file(folder, next++));
        CHECK(added >= 0);
        turns++;
        struct seekless_order_item item;
        int status;
        while ((status = seekless_order_next(order, &item)) > SEEKLESS_ORDER_END) {
            if (status == SEEKLESS_ORDER_FAILURE) {
                CHECK(strcmp(item.path, "gone") == 0 && strstr(item.reason, "No such file"));
                failures++;
                continue;
            }
            CHECK(item.reason == NULL && item.offset == 0 && item.last == 1);
            CHECK(item.how == SEEKLESS_ORDER_BY_ADDRESS || item.how == SEEKLESS_ORDER_BY_INODE);
            int number = atoi(strrchr(item.path, '/') + 2);
            CHECK(number >= 0 && number < files && !seen[number]);
            seen[number] = 1;
            FILE *in = fopen(item.path, "r");
            CHECK(in != NULL);
            fseek(in, 0, SEEK_END);
            CHECK((uint64_t)ftell(in) == item.length);
            fclose(in);
            items++;
        }
        CHECK(status == SEEKLESS_ORDER_END && item.path == NULL);
    }
    CHECK(items == files && failures == 1 && turns > files / 17);

    /* A child has no thread that reads: it is refused, and can free the handle. */
    CHECK(seekless_order_add(order, file(folder, 0)) == SEEKLESS_ORDER_DONE);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct seekless_order_item item;
        CHECK(seekless_order_add(order, path) == SEEKLESS_ORDER_E_FORKED);
        CHECK(seekless_order_next(order, &item) == SEEKLESS_ORDER_E_FORKED);
        seekless_order_free(order);
        _exit(0);
    }
    int ended;
    CHECK(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    /* In the middle of its items. */
    seekless_order_free(order);
    printf("%d items, %s\n", items, seekless_order_how(SEEKLESS_ORDER_BY_LISTED));
    return 0;
}
