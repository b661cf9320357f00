/* Counters in memory that the processes of a host share: one process adds to a counter, and others wait for a value.

   A store with release order makes all earlier writes of the process visible to those who read the new value with
   acquire order (C11, section 7.17.3).  A process that waits pauses a few times, then yields its core for a while, and
   then sleeps in the kernel (a futex on Linux); the one that sets the counter wakes the sleepers, if there are any.  It
   does not yield where a process outside of the job would keep the core for long: the kernel wakes a sleeper sooner. */

#pragma once

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define CACHE_LINE 64

typedef struct {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
    char rest[CACHE_LINE - 8];
} counter;

static inline uint32_t counter_value(counter *c) { return atomic_load_explicit(&c->value, memory_order_acquire); }

/* Values wrap around, so they are compared by their distance. */
static inline int counter_reached(counter *c, uint32_t value) { return (int32_t)(counter_value(c) - value) >= 0; }

/* Set the counter and wake its sleepers.  The processor may look for sleepers before others see the value, so a process
   that falls asleep at this moment is not woken: it sleeps to the end of its nap, of a millisecond or less.  A fence
   would prevent this, but each call would wait for it: half of the time of a short all-reduce if cores are far apart. */
static inline void counter_set(counter *c, uint32_t value) {
    atomic_store_explicit(&c->value, value, memory_order_release);
#ifdef __linux__
    if (atomic_load_explicit(&c->sleepers, memory_order_relaxed))
        syscall(SYS_futex, &c->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
}

/* What a process does now: its turn, and the call that this turn belongs to. */
typedef _Atomic uint64_t announcement;

static inline void announce(announcement *a, uint32_t turn, uint32_t call) {
    atomic_store_explicit(a, (uint64_t)turn << 32 | call, memory_order_release);
}

static inline uint32_t announced(announcement *a, uint32_t *turn) {
    uint64_t both = atomic_load_explicit(a, memory_order_acquire);
    *turn = both >> 32;
    return (uint32_t)both;
}

/* A lock for the threads of a process, which is held for a short time. */
typedef _Atomic int lock;

static inline int lock_taken(lock *l) { return !atomic_exchange_explicit(l, 1, memory_order_acquire); }

static inline void lock_left(lock *l) { atomic_store_explicit(l, 0, memory_order_release); }

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb");
#endif
}

static inline void sleep_for(int64_t nanoseconds) {
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    nanosleep(&time, NULL);
}

static inline int64_t nanoseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Yield the core; return whether that took so long that a process outside of the job must have used it meanwhile. */
static inline int yield_core(void) {
    int64_t start = nanoseconds_now();
    sched_yield();
    return nanoseconds_now() - start > 1000000;
}

/* Sleep until the value may have been reached, but not longer than `nanoseconds`, which are less than a second. */
static inline void counter_sleep(counter *c, uint32_t value, long nanoseconds) {
    struct timespec most = {0, nanoseconds};
#ifdef __linux__
    atomic_fetch_add(&c->sleepers, 1);
    uint32_t now = atomic_load(&c->value);
    if ((int32_t)(now - value) < 0) syscall(SYS_futex, &c->value, FUTEX_WAIT, now, &most, NULL, 0);
    atomic_fetch_sub(&c->sleepers, 1);
#else
    most.tv_nsec = nanoseconds < 50000 ? nanoseconds : 50000;
    if (!counter_reached(c, value)) nanosleep(&most, NULL);
#endif
}
