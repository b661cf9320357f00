/* Copies of blocks.  In three cases, memcpy would take much longer than needed:

   - The copy begins 1 to 31 bytes behind the block, if both are counted from the beginnings of their pages.  AMD
     processors then take fifteen times as long for the instruction `rep movsb`.  The memcpy of glibc before 2.39 copies
     more than 2 KiB by it (https://sourceware.org/bugzilla/show_bug.cgi?id=30994), and so does the Linux kernel.
   - Another process will read the copy.  Before a core writes a cache line, it takes the line from the core that has
     read it last.  If these two are far apart, that takes longer than all the rest; stores that bypass the caches do
     without.  If the two are close, such stores are slower than others.  So one of 32 copies is timed, and decides for
     the next ones.
   - The copy does not fit in the caches.  Stores that bypass them do not read what they overwrite. */

#pragma once

#include <string.h>

#include "atomics.h"
#ifdef __linux__
#include <sys/uio.h>
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define PAGE_BYTES 4096
#define BY_VECTORS 2048       /* bytes that memcpy copies by vector instructions */
#define FOR_OTHERS 4096       /* bytes from which stores may bypass the caches, which have short blocks sooner */
#define NOT_CACHED (1 << 22)  /* bytes of a copy that does not fit in the caches */
#define FAST 6                /* bytes that are copied in a nanosecond if the cores are close */
#define UNTIMED 31            /* copies between two that are timed */
#define THROUGH (1 << 14)     /* bytes of the memory through which a block is copied to a slow place */

/* Whether `rep movsb` is slow between these two places. */
static inline int is_slow(uintptr_t to, uintptr_t from) {
    uintptr_t behind = (to - from) % PAGE_BYTES;
    return 1 <= behind && behind <= 31;
}

static inline void copy_bypassing_caches(char *to, const char *from, size_t size) {
#ifdef __SSE2__
    size_t head = -(uintptr_t)to % sizeof(__m128i), lines;
    memcpy(to, from, head);
    to += head, from += head, size -= head;
    for (lines = size / CACHE_LINE; lines; lines--, to += CACHE_LINE, from += CACHE_LINE)
        for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    size %= CACHE_LINE;
    _mm_sfence(); /* others may read the block when the next store is visible */
#endif
    memcpy(to, from, size);
}

/* Copy a block; the two may overlap. */
static inline void copy(char *to, const char *from, size_t size) {
    if (size > BY_VECTORS && (uintptr_t)to - (uintptr_t)from >= size && (uintptr_t)from - (uintptr_t)to >= size) {
        if (size >= NOT_CACHED) {
            copy_bypassing_caches(to, from, size);
            return;
        }
        if (is_slow((uintptr_t)to, (uintptr_t)from))
            for (; size > BY_VECTORS; size -= BY_VECTORS, to += BY_VECTORS, from += BY_VECTORS)
                memcpy(to, from, BY_VECTORS);
    }
    memmove(to, from, size);
}

/* Copy a block that another process will read. */
static inline void copy_for_others(char *to, const char *from, size_t size) {
    static _Atomic int next; /* copies until one is timed; negative if they bypass the caches */
    int now = atomic_load_explicit(&next, memory_order_relaxed);
    int64_t start;
    if (size < FOR_OTHERS) {
        copy(to, from, size);
        return;
    }
    if (now < 0) {
        copy_bypassing_caches(to, from, size);
        now++;
    } else if (now > 0) {
        copy(to, from, size);
        now--;
    } else {
        start = nanoseconds_now();
        copy(to, from, size);
        now = (nanoseconds_now() - start) * FAST > (int64_t)size ? -UNTIMED : UNTIMED;
    }
    atomic_store_explicit(&next, now, memory_order_relaxed);
}

/* Copy memory of another process; return whether all was copied. */
static inline int copy_from_process(int process, void *to, uint64_t from, size_t size) {
#ifdef __linux__
    char memory[THROUGH + PAGE_BYTES];
    while (size) {
        int slow = size > BY_VECTORS && is_slow((uintptr_t)to, from);
        char *at = slow ? memory + (from + CACHE_LINE - (uintptr_t)memory) % PAGE_BYTES : to;
        struct iovec here = {at, slow && size > THROUGH ? THROUGH : size};
        struct iovec there = {(void *)(uintptr_t)from, here.iov_len};
        ssize_t copied = process_vm_readv(process, &here, 1, &there, 1, 0);
        if (copied <= 0) return 0;
        if (slow) memcpy(to, at, copied);
        to = (char *)to + copied;
        from += copied;
        size -= copied;
    }
    return 1;
#else
    return size == 0;
#endif
}
