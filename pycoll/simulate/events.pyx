# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The events of `run.Ranks`, compiled: the same functions with the same names give the same times, to the last bit."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from cpython.exc cimport PyErr_CheckSignals

from .event_queue cimport (
    NONE,
    Bucket,
    Entry,
    Event,
    Pool,
    Queue,
    Table,
    add,
    append,
    begin_pool,
    begin_queue,
    begin_table,
    end_queue,
    find,
    give_back,
    next_event,
    pop,
    remove,
    schedule,
    take,
    take_first,
)

import numpy as np

from ..schedule.moves import Combine, Recv, Reduce, Send
from . import ports
from .network import UNCUT

cdef enum:
    RANK, PORT, MESSAGE  # kinds of events: the next round of a rank, the next turn at a port, the arrival of a message
    SEND = 0, RECEIVE, REDUCE, COMBINE, COPY  # kinds of moves, as in `pycoll.schedule.symmetry`
    NEAR = 2  # ports of a route that a message holds itself
    MOST_SIDES = 32  # of a grid of ranks
    LOOK = 1 << 16  # events between two looks for signals

cdef int64_t MOST_TURNS = ports.MOST_TURNS
cdef object SENDS = Send
cdef object RECEIVES = Recv
cdef object REDUCES = Reduce
cdef object COMBINES = Combine


cdef struct Link:
    double alpha
    double beta
    double overhead
    int64_t buffer
    int64_t frame
    bint shaped


cdef struct Message:
    int32_t next  # in the queue of unmatched sends; must come first
    int32_t next_in_line  # at a port
    int32_t next_owed  # in a flow
    int32_t source
    int32_t to
    int32_t link
    int32_t hops
    int32_t ports[NEAR]
    int32_t far  # the index of the other ports in `Simulation.far`
    int64_t nbytes
    int64_t left
    int64_t frame
    int64_t segments
    int64_t awaited  # bytes of the flow that must leave before the send completes
    int64_t reduced  # bytes that the receiver combines
    double alpha
    double handed
    double first
    double busy
    double since  # the start of the receive
    bint rendezvous
    bint received  # whether the receive has started
    bint arrived


cdef struct Wanted:
    int32_t next  # must come first
    int64_t reduced
    double since


cdef struct Flow:
    int32_t first  # of the pending messages
    int32_t last
    int64_t sent
    int64_t left


cdef struct Line:
    int32_t next
    int32_t first
    int32_t last
    uint64_t pair


cdef struct Port:
    double free
    double beta
    double busy
    int64_t nbytes
    int64_t frame
    int32_t first  # of the lines
    int32_t last
    bint awaited
    bint used


cdef struct Route:
    int32_t link
    int32_t hops
    int32_t ports[NEAR]
    int32_t far
    double alpha


cdef class Simulation:
    """All ranks, and the ports between them.

    `rounds` is a list with the rounds of each rank as an iterator, or a `Template` of the rounds of all ranks.
    `way(source, to)` returns the number of a link in `links`, the latency, and the ports on a route as numbers;
    `betas` is a list with the seconds per byte of each port, which `way` may extend.  If all hosts are on one switch,
    `hosts` has the host of each rank as a number below `host_count`, and `way` is not used.  `together` returns the
    bytes of blocks.
    """

    cdef readonly object ends, busy, messages, sent, received, combined
    cdef object rounds, way, together
    cdef list betas
    cdef Template template
    cdef Link[3] links
    cdef double hop, gamma
    cdef int64_t longest
    cdef int32_t size, host_count
    cdef int32_t[::1] hosts
    cdef int32_t[::1] open
    cdef int32_t[::1] round
    cdef double[::1] finish, processor, ends_of, busy_of
    cdef int64_t[::1] messages_of, sent_of, received_of, combined_of
    cdef Table sends, receives, lines, flows, routes
    cdef Pool message_pool, wanted_pool, line_pool, flow_pool, route_pool, port_pool, far_pool
    cdef Queue queue

    def __cinit__(self):
        begin_table(&self.sends)
        begin_table(&self.receives)
        begin_table(&self.lines)
        begin_table(&self.flows)
        begin_table(&self.routes)
        begin_pool(&self.message_pool, sizeof(Message))
        begin_pool(&self.wanted_pool, sizeof(Wanted))
        begin_pool(&self.line_pool, sizeof(Line))
        begin_pool(&self.flow_pool, sizeof(Flow))
        begin_pool(&self.route_pool, sizeof(Route))
        begin_pool(&self.port_pool, sizeof(Port))
        begin_pool(&self.far_pool, sizeof(int32_t))
        begin_queue(&self.queue)

    def __init__(self, rounds, links, hop, gamma, longest, together, betas, way, hosts=None, host_count=0):
        self.rounds, self.way, self.together, self.betas = rounds, way, together, betas
        self.template = rounds if isinstance(rounds, Template) else None
        for i, link in enumerate(links):
            self.links[i].alpha, self.links[i].beta, self.links[i].overhead = link.alpha, link.beta, link.overhead
            self.links[i].buffer, self.links[i].frame = min(link.buffer, UNCUT), min(link.frame, UNCUT)
            self.links[i].shaped = link.shaped
        ranks = self.size = len(rounds)
        self.hop, self.gamma, self.longest = hop, gamma, longest
        self.hosts, self.host_count = hosts, host_count
        self.open, self.round = np.zeros(ranks, np.int32), np.zeros(ranks, np.int32)
        self.finish, self.processor = np.zeros(ranks), np.zeros(ranks)
        self.ends, self.busy = np.full(ranks, np.nan), np.zeros(ranks)  # NaN: not ended
        self.messages, self.sent = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        self.received, self.combined = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        self.ends_of, self.busy_of = self.ends, self.busy
        self.messages_of, self.sent_of = self.messages, self.sent
        self.received_of, self.combined_of = self.received, self.combined
        self.add_ports()

    def __dealloc__(self):
        end_queue(&self.queue)
        free(self.sends.entries)
        free(self.receives.entries)
        free(self.lines.entries)
        free(self.flows.entries)
        free(self.routes.entries)
        free(self.message_pool.elements)
        free(self.wanted_pool.elements)
        free(self.line_pool.elements)
        free(self.flow_pool.elements)
        free(self.route_pool.elements)
        free(self.port_pool.elements)
        free(self.far_pool.elements)

    def run(self, starts):
        """Run all ranks from their starts until no event is left."""
        cdef int32_t rank, bucket
        cdef int64_t looked = 0
        cdef Event event
        cdef double now
        for rank, start in enumerate(starts):
            schedule(&self.queue, start, RANK, rank)
        while True:
            bucket = pop(&self.queue)
            if bucket == NONE:
                return
            now = (<Bucket *>self.queue.buckets.elements)[bucket].time
            while next_event(&self.queue, bucket, &event):
                if event.kind == RANK:
                    self.next_round(event.target, now)
                elif event.kind == MESSAGE:
                    self.arrive(event.target, now)
                else:
                    self.next_turn(event.target, now)
                looked += 1
                if looked % LOOK == 0:
                    PyErr_CheckSignals()

    def traffic(self):
        """Return the bytes that passed each port, and the seconds in which it was busy; None for a port not used."""
        cdef Port *ports = <Port *>self.port_pool.elements
        cdef int32_t i
        return [(ports[i].nbytes, ports[i].busy) if ports[i].used else None for i in range(self.port_pool.used)]

    # rounds

    cdef int next_round(self, int32_t rank, double now) except -1:
        """Start all moves of a round."""
        if self.template is not None:
            return self.next_round_of_template(rank, now)
        moves = next(self.rounds[rank], None)
        if moves is None:
            self.ends_of[rank] = now
            return 0
        self.finish[rank] = now
        self.open[rank] = len(moves) + 1
        for move in moves:
            if type(move) is SENDS:
                self.start(rank, SEND, move[0], self.together(move[1]), not move[1], now)
        for move in moves:
            kind = type(move)
            if kind is RECEIVES or kind is REDUCES:
                self.start(rank, REDUCE if kind is REDUCES else RECEIVE, move[0], self.together(move[1]), not move[1], now)
            elif kind is COMBINES:
                self.start(rank, COMBINE, rank, self.together([move.into]), False, now)
            elif kind is not SENDS:
                self.complete(rank, now)
        return self.complete(rank, now)

    cdef int next_round_of_template(self, int32_t rank, double now) except -1:
        cdef Template template = self.template
        cdef int32_t number = self.round[rank]
        cdef int64_t i
        if number == template.count:
            self.ends_of[rank] = now
            return 0
        self.round[rank] += 1
        self.finish[rank] = now
        self.open[rank] = template.first[number + 1] - template.first[number] + 1
        for i in range(template.first[number], template.first[number + 1]):
            self.start(
                rank, template.kind[i], template.moved(template.peer[i], rank), template.nbytes(rank, i), template.is_empty(i), now
            )
        return self.complete(rank, now)

    cdef inline int start(self, int32_t rank, int kind, int32_t peer, int64_t nbytes, bint empty, double now) except -1:
        """Start a move; a message without bytes is omitted, unless it belongs to a barrier (`empty`)."""
        if kind == COPY or (not nbytes and not empty and kind != COMBINE):
            return self.complete(rank, now)
        if kind == COMBINE:
            return self.complete(rank, self.work(rank, now, self.combine(rank, nbytes), 0.0))
        if not 0 <= peer < self.size:
            raise ValueError(f"a message of rank {rank} is for or from rank {peer} of {self.size} ranks")
        if kind == SEND:
            return self.send(rank, peer, nbytes, now)
        return self.receive(rank, peer, nbytes, kind == REDUCE, now)

    cdef inline int complete(self, int32_t rank, double time) except -1:
        """Record that a move in the current round of a rank is complete."""
        if time > self.finish[rank]:
            self.finish[rank] = time
        self.open[rank] -= 1
        if not self.open[rank]:
            schedule(&self.queue, self.finish[rank], RANK, rank)
        return 0

    cdef inline double work(self, int32_t rank, double now, double seconds, double earlier) noexcept:
        """Let the processor of a rank work, with a part done before; return the time at which it is done."""
        cdef double taken = self.processor[rank]
        self.processor[rank] = (taken if taken > now else now) + seconds - earlier
        self.busy_of[rank] += seconds
        return self.processor[rank]

    cdef inline double combine(self, int32_t rank, int64_t nbytes) noexcept:
        """Count combined bytes; return the seconds that combining takes."""
        self.combined_of[rank] += nbytes
        return nbytes * self.gamma

    # messages

    cdef inline Message *message(self, int32_t number) noexcept:
        return <Message *>self.message_pool.elements + number

    cdef inline uint64_t pair(self, Message *message) noexcept:
        return <uint64_t>message.source * self.size + message.to

    cdef int send(self, int32_t rank, int32_t to, int64_t nbytes, double now) except -1:
        """Start a send."""
        cdef int32_t number = take(&self.message_pool)
        cdef Message *message = self.message(number)
        cdef int64_t segments = (nbytes + self.longest - 1) // self.longest
        cdef Entry *waiting
        cdef Link *link
        cdef bint done
        memset(message, 0, sizeof(Message))
        message.source, message.to, message.nbytes, message.left = rank, to, nbytes, nbytes
        self.find_route(message)
        link = &self.links[message.link]
        message.segments = segments if segments else 1
        message.frame = max(link.frame, (nbytes + MOST_TURNS - 1) // MOST_TURNS) if link.frame else nbytes
        message.handed = self.work(rank, now, message.segments * link.overhead, 0.0)
        message.rendezvous = min(nbytes, self.longest) > link.buffer
        self.messages_of[rank] += 1
        self.sent_of[rank] += nbytes
        waiting = find(&self.receives, self.pair(message))
        if waiting:
            self.take_wanted(message, waiting)
        else:
            append(&self.sends, self.pair(message), &self.message_pool, number)
        if not message.rendezvous:
            if not nbytes or self.add_to_flow(number):
                self.complete(rank, message.handed)
            self.leave(number, now)
        elif message.received:
            self.leave(number, now)
        return 0

    cdef inline int take_wanted(self, Message *message, Entry *waiting) noexcept:
        """Match a message with the first receive that waits for it."""
        cdef int32_t first = take_first(&self.receives, waiting, &self.wanted_pool)
        cdef Wanted *wanted = <Wanted *>self.wanted_pool.elements + first
        message.received, message.since, message.reduced = True, wanted.since, wanted.reduced
        give_back(&self.wanted_pool, first)
        return 0

    cdef int receive(self, int32_t rank, int32_t source, int64_t nbytes, bint reduced, double now) except -1:
        """Start a receive."""
        cdef uint64_t pair = <uint64_t>source * self.size + rank
        cdef Entry *waiting = find(&self.sends, pair)
        cdef Message *message
        cdef int32_t number
        self.received_of[rank] += nbytes
        if not waiting:
            return self.add_wanted(pair, now, nbytes if reduced else 0)
        number = take_first(&self.sends, waiting, &self.message_pool)
        message = self.message(number)
        message.received, message.since, message.reduced = True, now, nbytes if reduced else 0
        if message.rendezvous:
            return self.leave(number, now)
        return self.end_receive(number, now) if message.arrived else 0

    cdef inline int add_wanted(self, uint64_t pair, double now, int64_t reduced) except -1:
        cdef int32_t number = take(&self.wanted_pool)
        cdef Wanted *wanted = <Wanted *>self.wanted_pool.elements + number
        wanted.since, wanted.reduced = now, reduced
        return append(&self.receives, pair, &self.wanted_pool, number)

    cdef inline int arrive(self, int32_t number, double now) except -1:
        """Handle the arrival of the last byte."""
        self.message(number).arrived = True
        return self.end_receive(number, now) if self.message(number).received else 0

    cdef int end_receive(self, int32_t number, double now) except -1:
        """Complete a receive: the receiver processes the segments that it has not processed yet."""
        cdef Message *message = self.message(number)
        cdef int32_t rank = message.to
        cdef double overhead = self.links[message.link].overhead
        cdef double last = overhead + min(message.reduced, self.longest) * self.gamma
        cdef double work = message.segments * overhead + self.combine(rank, message.reduced)
        cdef double idle = now - max(message.first, message.since) - (self.busy_of[rank] - message.busy)
        cdef double earlier = max(0.0, min(work - last, idle))
        give_back(&self.message_pool, number)
        return self.complete(rank, self.work(rank, now, work, earlier))

    # flows: a send completes when at most `Link.buffer` bytes to the same rank have not left

    cdef inline bint add_to_flow(self, int32_t number) except -1:
        """Add a message to the flow of its pair of ranks; return whether its send is complete at once."""
        cdef Message *message = self.message(number)
        cdef uint64_t pair = self.pair(message)
        cdef Entry *entry = find(&self.flows, pair)
        cdef Flow *flow
        if entry == NULL:
            entry = add(&self.flows, pair)
            entry.first = take(&self.flow_pool)
            flow = <Flow *>self.flow_pool.elements + entry.first
            flow.first, flow.last, flow.sent, flow.left = NONE, NONE, 0, 0
        flow = <Flow *>self.flow_pool.elements + entry.first
        flow.sent += message.nbytes
        message.awaited = flow.sent - self.links[message.link].buffer
        if message.awaited <= flow.left:
            return True
        message.next_owed = NONE
        if flow.first == NONE:
            flow.first = number
        else:
            self.message(flow.last).next_owed = number
        flow.last = number
        return False

    cdef int release(self, uint64_t pair, int64_t nbytes, double now, double beta) except -1:
        """Complete the sends that only wait for these bytes to leave."""
        cdef Entry *entry = find(&self.flows, pair)
        cdef Flow *flow = <Flow *>self.flow_pool.elements + entry.first
        cdef int64_t earlier = flow.left
        cdef Message *owed
        cdef double time
        flow.left += nbytes
        while flow.first != NONE and self.message(flow.first).awaited <= flow.left:
            owed = self.message(flow.first)
            flow.first = owed.next_owed
            time = now + (owed.awaited - earlier) * beta
            self.complete(owed.source, time if time > owed.handed else owed.handed)
        if flow.sent == flow.left:
            give_back(&self.flow_pool, entry.first)
            remove(&self.flows, entry)
        return 0

    # ports

    cdef inline Port *port(self, int32_t number) noexcept:
        return <Port *>self.port_pool.elements + number

    cdef int add_ports(self) except -1:
        """Add the ports that `way` has found since the last call, or all ports of one switch and of its hosts."""
        cdef int32_t number
        for i in range(self.port_pool.used, len(self.betas)):
            number = take(&self.port_pool)
            memset(self.port(number), 0, sizeof(Port))
            self.port(number).first = self.port(number).last = NONE
            self.port(number).beta = self.betas[i]
        return 0

    cdef inline int find_route(self, Message *message) except -1:
        """Set the link of a message, the ports that it passes, and its latency."""
        cdef Entry *entry
        cdef Route *route
        cdef int32_t here, there
        if self.hosts is not None:
            here, there = self.hosts[message.source], self.hosts[message.to]
            message.hops = 2
            if here != there:  # as `FatTree.route` and `Cluster._way`
                message.link, message.alpha = 0, self.links[0].alpha + self.hop
                message.ports[0], message.ports[1] = 2 * here, 2 * there + 1
            else:
                message.link, message.alpha = 2, self.links[2].alpha
                message.ports[0] = 2 * (self.host_count + message.source)
                message.ports[1] = 2 * (self.host_count + message.to) + 1
            return 0
        entry = find(&self.routes, self.pair(message))
        if entry == NULL:
            entry = self.add_route(message.source, message.to)
        route = <Route *>self.route_pool.elements + entry.first
        message.link, message.hops, message.alpha, message.far = route.link, route.hops, route.alpha, route.far
        message.ports[0], message.ports[1] = route.ports[0], route.ports[1]
        return 0

    cdef Entry *add_route(self, int32_t source, int32_t to) except NULL:
        cdef Entry *entry
        cdef Route *route
        cdef int32_t number, far
        link, alpha, ports = self.way(source, to)
        self.add_ports()
        number = take(&self.route_pool)
        route = <Route *>self.route_pool.elements + number
        memset(route, 0, sizeof(Route))
        route.link, route.hops, route.alpha, route.far = link, len(ports), alpha, self.far_pool.used
        for i, port in enumerate(ports):
            if i < NEAR:
                route.ports[i] = port
            else:
                far = take(&self.far_pool)
                (<int32_t *>self.far_pool.elements)[far] = port
        entry = add(&self.routes, <uint64_t>source * self.size + to)
        entry.first = number
        return entry

    cdef int leave(self, int32_t number, double now) except -1:
        """Let a message leave its host, in its turn."""
        cdef Message *message = self.message(number)
        cdef Port *port = self.port(message.ports[0])
        if port.first == NONE and port.free <= now and message.frame >= message.nbytes:
            return self.depart(number, message.nbytes, now)
        self.wait_in_line(port, number)
        if not port.awaited:
            port.awaited = True
            schedule(&self.queue, max(now, port.free), PORT, message.ports[0])
        return 0

    cdef int wait_in_line(self, Port *port, int32_t number) except -1:
        """Queue a message for its turn."""
        cdef Message *message = self.message(number)
        cdef uint64_t pair = self.pair(message)
        cdef Entry *entry = find(&self.lines, pair)
        cdef Line *line
        message.next_in_line = NONE
        if entry == NULL:
            entry = add(&self.lines, pair)
            entry.first = take(&self.line_pool)
            line = <Line *>self.line_pool.elements + entry.first
            line.first, line.pair = number, pair
            self.append_line(port, entry.first)
        else:
            line = <Line *>self.line_pool.elements + entry.first
            self.message(line.last).next_in_line = number
        line.last = number
        port.frame = max(port.frame, message.frame)
        return 0

    cdef inline int append_line(self, Port *port, int32_t number) noexcept:
        cdef Line *lines = <Line *>self.line_pool.elements
        lines[number].next = NONE
        if port.first == NONE:
            port.first = number
        else:
            lines[port.last].next = number
        port.last = number
        return 0

    cdef int next_turn(self, int32_t where, double now) except -1:
        """Let the message whose turn it is pass a port."""
        cdef Port *port = self.port(where)
        cdef int32_t number = port.first
        cdef Line *line = <Line *>self.line_pool.elements + number
        cdef int32_t first = line.first
        cdef Message *message = self.message(first)
        cdef int64_t nbytes = min(port.frame, message.left)
        port.first = line.next
        if nbytes == message.left:
            line.first = message.next_in_line
        if line.first != NONE:
            self.append_line(port, number)
        else:
            remove(&self.lines, find(&self.lines, line.pair))
            give_back(&self.line_pool, number)
        if port.first == NONE:
            port.frame = 0
        self.depart(first, nbytes, now)
        port.awaited = port.first != NONE
        if port.awaited:
            schedule(&self.queue, port.free, PORT, where)
        return 0

    cdef int depart(self, int32_t number, int64_t nbytes, double now) except -1:
        """Let `nbytes` bytes of a message pass its ports."""
        cdef Message *message = self.message(number)
        cdef Link *link = &self.links[message.link]
        cdef double through = 0.0
        cdef double duration, arrival
        cdef int64_t tail
        cdef int32_t i
        cdef Port *port
        if message.left == message.nbytes:
            message.first = now + message.alpha + min(nbytes, self.longest) * link.beta
            message.busy = self.busy_of[message.to]
        message.left -= nbytes
        for i in range(message.hops):
            if i < NEAR:
                port = self.port(message.ports[i])
            else:
                port = self.port((<int32_t *>self.far_pool.elements)[message.far + i - NEAR])
            duration = nbytes * port.beta
            port.free = (port.free if port.free > now else now) + duration
            port.busy += duration
            port.nbytes += nbytes
            port.used = True
            through = max(through, port.free)
        if nbytes and not message.rendezvous:
            self.release(self.pair(message), nbytes, now, self.port(message.ports[0]).beta)
        if not message.left:
            if link.shaped:
                tail = message.nbytes % link.frame
                through = max(now, through - (tail if tail else min(message.nbytes, link.frame)) * link.beta)
            arrival = max(through + link.overhead, message.handed) + message.alpha
            if message.rendezvous:
                self.complete(message.source, arrival)
            schedule(&self.queue, arrival, MESSAGE, number)
        return 0


cdef class Template:
    """The rounds of all ranks of a symmetric schedule: those of rank 0, moved on a grid with these sides.

    `rounds` is what `symmetric_rounds` returns.  Each block has `part` bytes, and the first `longer` blocks one more.
    """

    cdef int32_t ranks
    cdef int32_t count  # of the rounds
    cdef int64_t part, longer
    cdef bint halves  # whether all sides are 2
    cdef int64_t[::1] first  # the moves of each round
    cdef int64_t[::1] first_block  # the blocks of each move
    cdef int32_t[::1] block, peer, sides
    cdef int32_t[:, ::1] coordinates  # of the blocks of each move
    cdef int8_t[::1] kind

    def __init__(self, rounds, sides, part, longer):
        moves = [move for one in rounds for move in one]
        self.ranks, self.count, self.part, self.longer = np.prod(sides), len(rounds), part, longer
        if len(sides) > MOST_SIDES:
            raise ValueError(f"a grid of {len(sides)} dimensions has more than {MOST_SIDES}")
        self.sides = np.array(sides, np.int32)
        self.halves = set(sides) == {2}
        self.first = np.cumsum([0, *map(len, rounds)], dtype=np.int64)
        self.first_block = np.cumsum([0, *(len(move.blocks) for move in moves)], dtype=np.int64)
        self.block = np.array([block for move in moves for block in move.blocks], np.int32)
        self.coordinates = np.stack(np.unravel_index(np.asarray(self.block) % self.ranks, sides), 1).astype(np.int32)
        self.peer = np.array([move.peer for move in moves], np.int32)
        self.kind = np.array([move.kind for move in moves], np.int8)

    def __len__(self):
        return self.ranks

    cdef inline int32_t moved(self, int32_t number, int32_t rank) noexcept:
        """Return the rank whose coordinates are the sums of those of two ranks."""
        cdef int32_t dimensions = self.sides.shape[0]
        cdef int32_t found = 0
        cdef int32_t stride = 1
        cdef int32_t i, side
        if dimensions == 1:
            return number + rank - (self.ranks if number + rank >= self.ranks else 0)
        if self.halves:
            return number ^ rank
        for i in range(dimensions - 1, -1, -1):
            side = self.sides[i]
            found += (number % side + rank % side) % side * stride
            number, rank, stride = number // side, rank // side, stride * side
        return found

    cdef inline bint is_empty(self, int64_t move) noexcept:
        return self.first_block[move] == self.first_block[move + 1]

    cdef inline int64_t nbytes(self, int32_t rank, int64_t move) noexcept:
        """Return the bytes of a move of a rank."""
        cdef int64_t begin = self.first_block[move]
        cdef int64_t end = self.first_block[move + 1]
        cdef int64_t found = (end - begin) * self.part
        cdef int64_t i
        cdef int32_t dimensions = self.sides.shape[0]
        cdef int32_t[MOST_SIDES] here
        cdef int32_t d, block, coordinate
        if not self.longer:
            return found
        for d in range(dimensions - 1, -1, -1):
            here[d], rank = rank % self.sides[d], rank // self.sides[d]
        for i in range(begin, end):
            block = self.block[i] // self.ranks  # above 0 with several blocks for each rank
            for d in range(dimensions):
                coordinate = self.coordinates[i, d] + here[d]
                block = block * self.sides[d] + coordinate - (self.sides[d] if coordinate >= self.sides[d] else 0)
            found += block < self.longer
        return found
