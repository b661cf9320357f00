/* Sleeping in pycoll/core/atomics.h: one rank sets a counter, and the others sleep until it has the value they want.

   Here they sleep without a time limit, so a rank that nobody wakes waits forever.  Memory is sequentially consistent,
   as the accesses in atomics.h are.  Each of these macros breaks the protocol:

   - EARLY: the one that sets the counter looks for sleepers before it stores the value;
   - BLIND: the kernel lets a rank sleep without comparing the value again.  */

#ifndef RANKS
#define RANKS 2
#endif
#define VALUES 4

byte value, sleepers;
bool asleep[RANKS];

proctype Setter() {
    byte number, rank, seen;
    for (number : 1 .. VALUES) {
#ifdef EARLY
        seen = sleepers;
        value = number;
#else
        value = number;
        seen = sleepers;
#endif
        if
        :: seen > 0 ->
            atomic { /* FUTEX_WAKE */
                for (rank : 0 .. RANKS - 1) {
                    asleep[rank] = false
                }
            }
        :: else
        fi
    }
}

proctype Sleeper(byte me) {
    byte wanted, now;
    for (wanted : 1 .. VALUES) {
        do
        :: value >= wanted -> break
        :: else ->
            sleepers++;
            now = value;
            if
            :: now < wanted ->
                atomic { /* FUTEX_WAIT */
#ifdef BLIND
                    asleep[me] = true
#else
                    asleep[me] = value == now
#endif
                }
                !asleep[me]
            :: else
            fi;
            sleepers--
        od
    }
}

init {
    byte rank;
    atomic {
        run Setter();
        for (rank : 1 .. RANKS - 1) {
            run Sleeper(rank)
        }
    }
}
