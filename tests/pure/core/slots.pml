/* The protocol of pycoll/core/slots.pyx: ranks publish values in slots, and read those of other ranks.

   Ranks make turns forever.  The value of a turn is its number.  Numbers wrap around at TURNS, as they do at 2^32 in
   memory.  Turns are of these kinds; the first rank that comes to the middle or the end of TURNS chooses the next one:

   - ALL: each rank reads the slots of all ranks, as in a short all-reduce;
   - SHARES: each rank reads all slots, puts a result beside its slot, and reads the results of all ranks;
   - FROM: all ranks read the slot of the root;
   - INTO: the root reads the slots of all ranks.

   A reader must see the value of its own turn, and no rank may wait forever.  Each of these macros breaks this:

   - HASTY: a rank writes to its slot without waiting until others have left the turn of the last value;
   - FEWER: there is one slot less than the protocol assumes;
   - SILENT: a rank that publishes nothing for many turns does not post, until its counters seem to be ahead.  */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#define TURNS (4 * SLOTS)

#ifdef FEWER
#define USED (SLOTS - 1)
#else
#define USED SLOTS
#endif

#define OLD TURNS /* stands for all values that nobody may read */
#define reached(counter, turn) ((counter + TURNS - turn) % TURNS < TURNS / 2)
#define place(rank) ((rank) * USED + number % USED)
#define publishes(rank) (kind == ALL || kind == FROM && rank == root || kind == INTO && rank != root)
#define reads(source) (source != me && publishes(source) && (kind != INTO || me == root))

mtype = { ALL, SHARES, FROM, INTO };
mtype kinds[SLOTS] = ALL; /* of the turns that some rank has not left */
byte roots[SLOTS];
byte newest; /* the last turn that a rank has begun */

byte ready[RANKS * USED], done[RANKS], gone[RANKS]; /* the counters READY of all slots, DONE and LEFT */
byte slot[RANKS * USED], result[RANKS * USED];

inline choose() {
    if
    :: kind = ALL
    :: kind = SHARES
    :: kind = FROM
    :: kind = INTO
    fi;
    root = 0;
    do
    :: (kind == FROM || kind == INTO) && root < RANKS - 1 -> root++
    :: break
    od
}

proctype Rank(byte me) {
    byte number, peer, root, other;
    mtype kind = ALL;
    do
    ::  number = (number + 1) % TURNS;
#ifndef HASTY
        atomic { /* the order of steps that only read does not matter */
            for (peer : 0 .. RANKS - 1) {
                peer == me || reached(gone[peer], (number + TURNS - SLOTS) % TURNS)
            }
        }
#endif
        atomic {
            slot[place(me)] = OLD; /* a copy takes a while */
            result[place(me)] = OLD;
            if
            :: newest != number && reached(number, newest) ->
                newest = number;
                if
                :: number % (TURNS / 2) == 0 -> choose()
                :: else
                fi;
                kinds[number % SLOTS] = kind;
                roots[number % SLOTS] = root
            :: else ->
                kind = kinds[number % SLOTS];
                root = roots[number % SLOTS]
            fi
        }
        if
        :: kind == SHARES || publishes(me) ->
            slot[place(me)] = number;
            ready[place(me)] = number
        :: else
        fi;
        atomic {
            for (peer : 0 .. RANKS - 1) {
                if
                :: kind == SHARES || reads(peer) ->
                    reached(ready[place(peer)], number);
                    assert(slot[place(peer)] == number)
                :: else
                fi
            }
        }
        if
        :: kind == SHARES ->
            result[place(me)] = number;
            done[me] = number;
            atomic {
                for (peer : 0 .. RANKS - 1) {
                    reached(done[peer], number);
                    assert(result[place(peer)] == number)
                }
            }
        :: else
        fi;
#ifndef SILENT
        if
        :: number % (TURNS / 4) == 0 ->
            for (other : 0 .. USED - 1) {
                ready[me * USED + other] = number
            }
            done[me] = number
        :: else
        fi;
#endif
        gone[me] = number
    od
}

init {
    byte rank;
    atomic {
        for (rank : 0 .. RANKS - 1) {
            run Rank(rank)
        }
    }
}
