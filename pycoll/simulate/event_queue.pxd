"""Tables, pools and the queue of events of the simulation.

Events at the same time are handled in the order in which they were scheduled, and most come in groups of one time.  So
the heap has a bucket for each time, and the events of a bucket are a list.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

cdef enum:
    NONE = -1  # no element of a pool
    RECENT = 256  # buckets that are found by their time


cdef inline void *grown(void *array, size_t count, size_t nbytes) except NULL nogil:
    """Return the array with room for `count` elements."""
    array = realloc(array, count * nbytes)
    if array == NULL:
        with gil:
            raise MemoryError(f"{count * nbytes} bytes for the simulation")
    return array


# A pool: elements of one kind, which refer to each other by their numbers.  An element that is not used holds the
# number of the next one in its first bytes.


cdef struct Pool:
    char *elements
    size_t nbytes  # of an element
    int32_t capacity
    int32_t used
    int32_t unused  # the first one that has been given back, or NONE


cdef inline void begin_pool(Pool *pool, size_t nbytes) noexcept nogil:
    pool.elements, pool.nbytes, pool.capacity, pool.used, pool.unused = NULL, nbytes, 0, 0, NONE


cdef inline int32_t take(Pool *pool) except NONE nogil:
    """Return the number of an element that is not used.  Pointers to others become invalid."""
    cdef int32_t number = pool.unused
    if number != NONE:
        memcpy(&pool.unused, pool.elements + number * pool.nbytes, sizeof(int32_t))
        return number
    if pool.used == pool.capacity:
        pool.capacity = 2 * pool.capacity or 1024
        pool.elements = <char *>grown(pool.elements, pool.capacity, pool.nbytes)
    pool.used += 1
    return pool.used - 1


cdef inline void give_back(Pool *pool, int32_t number) noexcept nogil:
    memcpy(pool.elements + number * pool.nbytes, &pool.unused, sizeof(int32_t))
    pool.unused = number


# A table: an entry for each key, in open addressing with linear probing.


cdef struct Entry:
    uint64_t key  # plus 1; 0 is an empty entry
    int32_t first
    int32_t last


cdef struct Table:
    Entry *entries
    uint64_t mask
    uint64_t used
    int shift


cdef inline void begin_table(Table *table) except *:
    table.entries = <Entry *>calloc(1024, sizeof(Entry))
    if table.entries == NULL:
        raise MemoryError("a table of the simulation")
    table.mask, table.used, table.shift = 1023, 0, 54


cdef inline uint64_t home(Table *table, uint64_t key) noexcept nogil:
    return (key * <uint64_t>0x9E3779B97F4A7C15) >> table.shift


cdef inline Entry *find(Table *table, uint64_t key) noexcept nogil:
    """Return the entry with a key, or NULL."""
    cdef uint64_t at
    if not table.used:
        return NULL
    at = home(table, key)
    while table.entries[at].key:
        if table.entries[at].key == key + 1:
            return &table.entries[at]
        at = (at + 1) & table.mask
    return NULL


cdef inline Entry *add(Table *table, uint64_t key) except NULL nogil:
    """Return a new entry for a key that has none.  Pointers to others become invalid."""
    cdef uint64_t at
    if 4 * table.used > 3 * table.mask:
        double(table)
    at = home(table, key)
    while table.entries[at].key:
        at = (at + 1) & table.mask
    table.used += 1
    table.entries[at].key, table.entries[at].first, table.entries[at].last = key + 1, NONE, NONE
    return &table.entries[at]


cdef inline int double(Table *table) except -1 nogil:
    cdef Table larger
    cdef Entry *entry
    cdef uint64_t i
    larger.mask, larger.used, larger.shift = 2 * table.mask + 1, 0, table.shift - 1
    larger.entries = <Entry *>grown(NULL, larger.mask + 1, sizeof(Entry))
    memset(larger.entries, 0, (larger.mask + 1) * sizeof(Entry))
    for i in range(table.mask + 1):
        if table.entries[i].key:
            entry = add(&larger, table.entries[i].key - 1)
            entry.first, entry.last = table.entries[i].first, table.entries[i].last
    free(table.entries)
    table[0] = larger
    return 0


cdef inline void remove(Table *table, Entry *entry) noexcept nogil:
    """Remove an entry.  Pointers to others become invalid."""
    cdef uint64_t hole = entry - table.entries
    cdef uint64_t at = hole
    cdef uint64_t wanted
    table.used -= 1
    while True:
        table.entries[hole].key = 0
        while True:
            at = (at + 1) & table.mask
            if not table.entries[at].key:
                return
            wanted = home(table, table.entries[at].key - 1)
            if ((at - wanted) & table.mask) >= ((at - hole) & table.mask):  # it may stand in the hole
                break
        table.entries[hole] = table.entries[at]
        hole = at


# An entry can be a queue of elements of a pool, each of which holds the number of the next one in its first bytes.


cdef inline int append(Table *table, uint64_t key, Pool *pool, int32_t number) except -1 nogil:
    """Append an element to the queue of a key."""
    cdef Entry *entry = find(table, key)
    cdef int32_t none = NONE
    memcpy(pool.elements + number * pool.nbytes, &none, sizeof(int32_t))
    if entry == NULL:
        entry = add(table, key)
        entry.first = number
    else:
        memcpy(pool.elements + entry.last * pool.nbytes, &number, sizeof(int32_t))
    entry.last = number
    return 0


cdef inline int32_t take_first(Table *table, Entry *entry, Pool *pool) noexcept nogil:
    """Take the first element out of a queue, and remove the entry if it was the last one."""
    cdef int32_t number = entry.first
    memcpy(&entry.first, pool.elements + number * pool.nbytes, sizeof(int32_t))
    if entry.first == NONE:
        remove(table, entry)
    return number


cdef struct Event:
    int32_t next
    int32_t kind
    int32_t target


cdef struct Bucket:
    int32_t first
    int32_t last
    double time


cdef struct Turn:
    double time
    int64_t number  # buckets of the same time keep the order of their creation
    int32_t bucket


cdef struct Queue:
    Pool events
    Pool buckets
    Turn *heap
    size_t size
    size_t capacity
    int64_t created
    int32_t recent[RECENT]


cdef inline void begin_queue(Queue *queue) noexcept nogil:
    begin_pool(&queue.events, sizeof(Event))
    begin_pool(&queue.buckets, sizeof(Bucket))
    queue.heap, queue.size, queue.capacity, queue.created = NULL, 0, 0, 0
    memset(queue.recent, 0xFF, sizeof(queue.recent))


cdef inline void end_queue(Queue *queue) noexcept nogil:
    free(queue.events.elements)
    free(queue.buckets.elements)
    free(queue.heap)


cdef inline int32_t *recent(Queue *queue, double time) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &time, sizeof(bits))
    return &queue.recent[(bits * <uint64_t>0x9E3779B97F4A7C15) >> 56]


cdef inline bint before(Turn *one, Turn *other) noexcept nogil:
    return one.time < other.time or (one.time == other.time and one.number < other.number)


cdef inline int schedule(Queue *queue, double time, int32_t kind, int32_t target) except -1 nogil:
    """Schedule an event."""
    cdef int32_t number = take(&queue.events)
    cdef Event *event = <Event *>queue.events.elements + number
    cdef int32_t *slot = recent(queue, time)
    cdef Bucket *bucket
    event.next, event.kind, event.target = NONE, kind, target
    if slot[0] != NONE:
        bucket = <Bucket *>queue.buckets.elements + slot[0]
        if bucket.time == time:
            if bucket.first == NONE:  # its last event is being handled
                bucket.first = number
            else:
                (<Event *>queue.events.elements)[bucket.last].next = number
            bucket.last = number
            return 0
    slot[0] = take(&queue.buckets)
    bucket = <Bucket *>queue.buckets.elements + slot[0]
    bucket.first, bucket.last, bucket.time = number, number, time
    return push(queue, time, slot[0])


cdef inline int push(Queue *queue, double time, int32_t bucket) except -1 nogil:
    cdef size_t at = queue.size
    cdef Turn turn
    turn.time, turn.number, turn.bucket = time, queue.created, bucket
    queue.created += 1
    if queue.size == queue.capacity:
        queue.capacity = 2 * queue.capacity or 1024
        queue.heap = <Turn *>grown(queue.heap, queue.capacity, sizeof(Turn))
    queue.size += 1
    while at and before(&turn, &queue.heap[(at - 1) // 2]):
        queue.heap[at] = queue.heap[(at - 1) // 2]
        at = (at - 1) // 2
    queue.heap[at] = turn
    return 0


cdef inline int32_t pop(Queue *queue) noexcept nogil:
    """Return the next bucket, or NONE."""
    cdef size_t at = 0
    cdef size_t child
    cdef int32_t found
    cdef Turn turn
    if not queue.size:
        return NONE
    found = queue.heap[0].bucket
    queue.size -= 1
    turn = queue.heap[queue.size]
    while True:
        child = 2 * at + 1
        if child >= queue.size:
            break
        if child + 1 < queue.size and before(&queue.heap[child + 1], &queue.heap[child]):
            child += 1
        if not before(&queue.heap[child], &turn):
            break
        queue.heap[at] = queue.heap[child]
        at = child
    queue.heap[at] = turn
    return found


cdef inline bint next_event(Queue *queue, int32_t number, Event *event) noexcept nogil:
    """Take the next event out of a bucket; give the bucket back and return False if it is empty."""
    cdef Bucket *bucket = <Bucket *>queue.buckets.elements + number
    cdef int32_t *slot
    cdef int32_t first = bucket.first
    if first == NONE:
        slot = recent(queue, bucket.time)
        if slot[0] == number:
            slot[0] = NONE
        give_back(&queue.buckets, number)
        return False
    event[0] = (<Event *>queue.events.elements)[first]
    bucket.first = event.next
    give_back(&queue.events, first)
    return True
