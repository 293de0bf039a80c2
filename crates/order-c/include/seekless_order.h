/*
 * libseekless_order: files in the order in which their disk reads them best, read ahead of the program.
 *
 * For programs that take files in any order. Add paths, take items, add more:
 *
 *     seekless_order *order = seekless_order_new();
 *     struct seekless_order_item item;
 *     int full = 0;
 *     while (!full && (path = my_next_path()) != NULL)
 *         full = seekless_order_add(order, path);
 *     while (seekless_order_next(order, &item) > SEEKLESS_ORDER_END)
 *         if (item.reason == NULL)
 *             my_read(item.path, item.offset, item.length);
 *         else
 *             fprintf(stderr, "%s: %s\n", item.path, item.reason);
 *     seekless_order_free(order);
 *
 * No daemon and no privilege is needed. Where a daemon of Seekless answers, it reads, in one order with all
 * else that it reads from the disk; seekless_order_read_by() tells. A handle may be used by any thread, and by
 * one at a time. It belongs to the process that made it: after fork(), the child can only free it.
 *
 * From the Seekless project: cargo build --release -p seekless-order-c
 */
#ifndef SEEKLESS_ORDER_H
#define SEEKLESS_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this header describes; seekless_order_abi() tells what the library is. */
#define SEEKLESS_ORDER_ABI 1

typedef struct seekless_order seekless_order;

/* Errors of every function that returns a status. */
#define SEEKLESS_ORDER_E_USAGE (-1)  /* a null pointer, an unknown option, a value out of range */
#define SEEKLESS_ORDER_E_FORKED (-2) /* the handle was made by another process */
#define SEEKLESS_ORDER_E_SYSTEM (-3) /* no thread can be started, or a defect of the library */

/* Options, to be set before the first path is added. */
#define SEEKLESS_ORDER_WINDOW 1    /* most bytes read ahead of what was taken; 64 MiB. 0: none */
#define SEEKLESS_ORDER_RANGE_MAX 2 /* a longer file comes as several ranges in turn. 0, the default: no file does */
#define SEEKLESS_ORDER_BY 3        /* what to sort by, one of SEEKLESS_ORDER_BY_*; the address */
#define SEEKLESS_ORDER_FOLDERS 4   /* 1: a folder stands for the regular files below it; 0 */
#define SEEKLESS_ORDER_BATCH 5     /* most paths that are sorted together, 1 to 10,000,000; 100,000 */
#define SEEKLESS_ORDER_DAEMON 6    /* 1, the default: a daemon reads, where one answers; 0: this process */

/* What is sorted by, and how an item came to its turn. */
#define SEEKLESS_ORDER_BY_ADDRESS 0 /* address of the first bytes on the disk; by inode where there is none */
#define SEEKLESS_ORDER_BY_INODE 1   /* inode number */
#define SEEKLESS_ORDER_BY_LISTED 2  /* nothing: as listed */

/* What seekless_order_add returns. */
#define SEEKLESS_ORDER_DONE 0
#define SEEKLESS_ORDER_FULL 1 /* the path was added, and with it a batch is full: take items now */

/* What seekless_order_next returns. */
#define SEEKLESS_ORDER_END 0     /* every path that was added has had its turn */
#define SEEKLESS_ORDER_ITEM 1    /* an item, whose bytes are in memory */
#define SEEKLESS_ORDER_FAILURE 2 /* a path that cannot be put in order, with the reason */

struct seekless_order_item {
    const char *path;   /* valid until the next call with this handle */
    const char *reason; /* why it cannot be put in order; NULL of an item */
    uint64_t offset;    /* where the range begins, bytes; 0 of a whole file */
    uint64_t length;    /* bytes of the range, when the file was looked up; 0 of a folder */
    int how;            /* one of SEEKLESS_ORDER_BY_* */
    int last;           /* 1: the last range of its file */
};

/* The interface that the library has: compare it with SEEKLESS_ORDER_ABI. */
int seekless_order_abi(void);

/* A handle with the default options. */
seekless_order *seekless_order_new(void);

/* Sets an option. SEEKLESS_ORDER_DONE or an error. */
int seekless_order_set(seekless_order *order, int option, uint64_t value);

/* Adds a path; it is copied. SEEKLESS_ORDER_DONE, SEEKLESS_ORDER_FULL or an error. */
int seekless_order_add(seekless_order *order, const char *path);

/*
 * The next item. Waits for the disk; the first item of a batch waits until all of its paths are looked up.
 * SEEKLESS_ORDER_END, SEEKLESS_ORDER_ITEM, SEEKLESS_ORDER_FAILURE or an error. After SEEKLESS_ORDER_END, paths
 * may be added again.
 */
int seekless_order_next(seekless_order *order, struct seekless_order_item *item);

/* "address", "inode" or "as listed"; NULL for other numbers. */
const char *seekless_order_how(int how);

/*
 * What brought the bytes of the item given last into memory: "nobody" (it has none, or they are left to the
 * program), "itself" (this process) or "daemon". NULL for a NULL handle.
 */
const char *seekless_order_read_by(const seekless_order *order);

/* Frees a handle and the strings of its items; waits for a read that is under way. NULL is nothing to free. */
void seekless_order_free(seekless_order *order);

#ifdef __cplusplus
}
#endif

#endif
