/* Mailboxes: a queue of entries in memory that two processes share; one process writes it, the other one reads it.

   The writer fills an entry and then sets its sequence number, with release order; the reader takes entries in order and
   then advances `taken`.  A process that finds nothing to do sleeps on its bell, which the other processes ring when they
   have written or taken an entry while it sleeps. */

#pragma once

#include "atomics.h"

#define ENTRIES 4
#define ENTRY_SIZE (1 << 14)
#define ENTRY_HEADER 24
#define SHORT_MESSAGE (1 << 16) /* up to this length, a message is copied twice, and needs no reply of its receiver */

typedef struct {
    _Atomic uint32_t sequence; /* the number of this entry, counted from 1 */
    uint32_t tag;
    int64_t size;     /* of the message, or what the entry is instead of the beginning of a message */
    uint64_t address; /* of a long message, which the reader copies itself; or what an entry refers to */
    char data[ENTRY_SIZE + CACHE_LINE - ENTRY_HEADER];
} entry;

typedef struct {
    _Atomic uint32_t taken; /* the number of entries that were read */
    char rest[CACHE_LINE - 4];
    entry entries[ENTRIES];
} mailbox;

static inline int entry_is(entry *e, uint32_t number) {
    return atomic_load_explicit(&e->sequence, memory_order_acquire) == number;
}

static inline void entry_set(entry *e, uint32_t number) {
    atomic_store_explicit(&e->sequence, number, memory_order_release);
}

static inline uint32_t mailbox_taken(mailbox *m) { return atomic_load_explicit(&m->taken, memory_order_acquire); }

static inline void mailbox_take(mailbox *m, uint32_t number) {
    atomic_store_explicit(&m->taken, number, memory_order_release);
}

/* Ring a bell if its process sleeps.  As in counter_set, one that falls asleep at this moment may not be woken. */
static inline void bell_ring(counter *bell) {
    if (atomic_load_explicit(&bell->sleepers, memory_order_relaxed)) {
        atomic_fetch_add(&bell->value, 1);
#ifdef __linux__
        syscall(SYS_futex, &bell->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
    }
}

/* Before the last look at the mailboxes: announce the sleep; return the value to sleep on. */
static inline uint32_t bell_announce(counter *bell) {
    atomic_fetch_add(&bell->sleepers, 1);
    return atomic_load(&bell->value);
}

static inline void bell_sleep(counter *bell, uint32_t value, long nanoseconds) {
    struct timespec most = {0, nanoseconds};
#ifdef __linux__
    syscall(SYS_futex, &bell->value, FUTEX_WAIT, value, &most, NULL, 0);
#else
    most.tv_nsec = nanoseconds < 50000 ? nanoseconds : 50000;
    nanosleep(&most, NULL);
#endif
}

static inline void bell_leave(counter *bell) { atomic_fetch_sub(&bell->sleepers, 1); }
