"""Small executors of files, which share no code with their readers: they run the steps in a random order."""

import json
from collections import Counter, defaultdict, deque
from xml.etree import ElementTree


class Stuck(Exception):
    """No step can run, or a message is left."""


class Memory:
    """The buffers of all ranks, with random numbers as input; a chunk that nothing has written holds None."""

    def __init__(self, collective, ranks, counts, in_place, draw):
        self.collective, self.ranks, self.in_place = collective.replace("_", ""), ranks, in_place
        self.per = max(counts) if self.collective == "allreduce" else max(counts) // ranks
        self.cells = defaultdict(lambda: None)
        chunks = self.per if self.collective in ("allreduce", "allgather") else self.per * ranks
        self.data = [[draw.getrandbits(60) for _ in range(chunks)] for _ in range(ranks)]
        for rank, values in enumerate(self.data):
            for chunk, value in enumerate(values):
                self[rank, "i", chunk] = value

    def key(self, rank, buffer, chunk):
        shift = {"allgather": ("i", "o", rank * self.per), "reducescatter": ("o", "i", rank * self.per)}
        given, name, more = shift.get(self.collective, ("o", "i", 0))
        return (rank, name, chunk + more) if self.in_place and buffer == given else (rank, buffer, chunk)

    def __getitem__(self, cell):
        return self.cells[self.key(*cell)]

    def __setitem__(self, cell, value):
        self.cells[self.key(*cell)] = value

    def is_right(self):
        """Whether the output of each rank is that of the collective."""
        each, ranks = range(self.per), range(self.ranks)
        for rank in ranks:
            match self.collective:
                case "allreduce":
                    wanted = [sum(values) for values in zip(*self.data)]
                case "allgather":
                    wanted = [value for values in self.data for value in values]
                case "reducescatter":
                    wanted = [sum(values[rank * self.per + k] for values in self.data) for k in each]
                case "alltoall":
                    wanted = [self.data[source][rank * self.per + k] for source in ranks for k in each]
            if [self[rank, "o", chunk] for chunk in range(len(wanted))] != wanted:
                return False
        return True


def total(values):
    return None if None in values else sum(values)


def run_in_any_order(threads, draw):
    """Run threads, functions that return whether they ran a step or have ended (None), in a random order."""
    threads = list(threads)
    while threads:
        draw.shuffle(threads)
        for thread in threads:
            done = thread()
            if done is None:
                threads.remove(thread)
            if done is not False:
                break
        else:
            raise Stuck


def run_msccl(text, draw):
    """Run an algorithm of MSCCL; return whether its result is right."""
    algo = ElementTree.fromstring(text)
    counts = [int(gpu.get(name)) for gpu in algo for name in ("i_chunks", "o_chunks")]
    memory = Memory(algo.get("coll"), int(algo.get("ngpus")), counts, algo.get("inplace") == "1", draw)
    room = 2 if algo.get("proto") == "Simple" else 8
    queues, flags, at = defaultdict(deque), defaultdict(lambda: -1), Counter()

    def thread(rank, tb):
        steps = sorted(tb, key=lambda step: int(step.get("s")))
        key, here = (rank, tb.get("id")), at[rank, tb.get("id")]
        if here == len(steps):
            return None
        step = {name: value if not value.lstrip("-").isdigit() else int(value) for name, value in steps[here].items()}
        kind, count = step["type"], step["cnt"]
        if step["depid"] >= 0 and flags[rank, str(step["depid"])] < step["deps"]:
            return False
        coming = queues[int(tb.get("recv")), rank, tb.get("chan")] if kind.startswith("r") and kind != "re" else None
        going = queues[rank, int(tb.get("send")), tb.get("chan")] if kind.endswith("s") else None
        if (coming is not None and not coming) or (going is not None and len(going) >= room):
            return False
        source = [(rank, step["srcbuf"], step["srcoff"] + each) for each in range(count)]
        to = [(rank, step["dstbuf"], step["dstoff"] + each) for each in range(count)]
        values = coming.popleft() if coming is not None else [memory[cell] for cell in source]
        if kind in ("rrc", "rrs", "rrcs", "re"):
            values = [total([value, memory[cell]]) for value, cell in zip(values, to if kind == "re" else source)]
        if kind in ("r", "rcs", "rrc", "rrcs", "cpy", "re"):
            for cell, value in zip(to, values):
                memory[cell] = value
        if going is not None:
            going.append(values)
        at[key] += 1
        if step["hasdep"]:
            flags[key] = here
        return True

    threads = [(int(gpu.get("id")), tb) for gpu in algo for tb in gpu]
    run_in_any_order([lambda each=each: thread(*each) for each in threads], draw)
    if any(queues.values()):
        raise Stuck
    return memory.is_right()


def run_mscclpp(text, draw):
    """Run an execution plan of MSCCL++; between two synchronizations, operations of a thread block run in any order."""
    plan = json.loads(text)
    counts = [gpu[name] for gpu in plan["gpus"] for name in ("input_chunks", "output_chunks")]
    memory = Memory(plan["collective"], len(plan["gpus"]), counts, plan["inplace"], draw)
    signals, todo = Counter(), {}
    for gpu in plan["gpus"]:
        for tb in gpu["threadblocks"]:
            regions = todo[gpu["id"], tb["id"]] = deque([[]])
            for op in tb["ops"]:
                if op["name"] == "nop":
                    regions.append([])
                else:
                    regions[-1].append(op)

    def cells(gpu, tb, buff):
        rank, kind = gpu["id"], buff.get("type")
        if "buffer_id" in buff:
            remote = gpu["remote_buffers"][tb["remote_buffer_refs"][0]["remote_buffer_ids"][buff["buffer_id"]]]
            rank, kind = remote["rank"], remote["type"]
        return [(rank, kind, buff["index"] + each) for each in range(buff["size"])]

    def channels(gpu, tb, op):
        peers = gpu["channels"][0]["connected_to"]
        ids = [tb["channels"][0]["channel_ids"][channel] for channel in op["channel_ids"]]
        return [(peers[each], peers[:each].count(peers[each])) for each in ids]

    def operation(gpu, tb, op):
        rank = gpu["id"]
        if op["name"] == "signal":
            signals.update((peer, rank, number) for peer, number in channels(gpu, tb, op))
        elif op["name"] == "wait":
            needed = Counter((rank, peer, number) for peer, number in channels(gpu, tb, op))
            if not needed <= signals:
                return False
            signals.subtract(needed)
        else:
            sources, targets = ([cells(gpu, tb, buff) for buff in op[f"{way}_buff"]] for way in ("src", "dst"))
            for cell, *of in zip(targets[0], *sources):
                memory[cell] = total([memory[each] for each in of])
        return True

    def thread(gpu, tb):
        regions = todo[gpu["id"], tb["id"]]
        if not regions:
            return None
        if not regions[0]:
            regions.popleft()
            return True
        draw.shuffle(regions[0])
        if operation(gpu, tb, regions[0][-1]):
            regions[0].pop()
            return True
        return False

    threads = [(gpu, tb) for gpu in plan["gpus"] for tb in gpu["threadblocks"]]
    tries = Counter()

    def patient(each):
        """A thread whose region has waits is only stuck after many tries in other orders."""
        done = thread(*each)
        tries[id(each)] = 0 if done else tries[id(each)] + 1
        return tries[id(each)] < 20 if done is False else done

    run_in_any_order([lambda each=each: patient(each) for each in threads], draw)
    return memory.is_right()


def run_goal(text, draw):
    """Run a schedule in GOAL, in which sends wait for their receives; raise Stuck if it does not end."""
    started, ended, queues, nodes, rank = set(), set(), defaultdict(lambda: ([], [])), {}, None
    for line in text.splitlines():
        words = line.replace(":", " ").replace("{", " ").split()
        if line.startswith("rank"):
            rank = int(words[1])
        elif "requires" in words:
            nodes[rank, words[0]][1].add((rank, words[2]))
        elif len(words) > 2:
            nodes[rank, words[0]] = words[1:], set()
    pending = defaultdict(list)  # the nodes that can end, in the order in which they do so if they have one tag
    while len(ended) < len(nodes):
        for key, ((kind, *words), needed) in nodes.items():
            if key in started or not needed <= ended:
                continue
            started.add(key)
            if kind == "calc":
                pending[key].append(key)
                continue
            here, peer, way = key[0], int(words[2]), kind == "recv"
            sends, receives = queue = queues[(peer, here, words[4]) if way else (here, peer, words[4])]
            queue[way].append((key, words[0]))
            if sends and receives:
                (one, size), (other, wanted) = sends.pop(0), receives.pop(0)
                assert size == wanted
                pending[id(sends)].append(one)
                pending[id(receives)].append(other)
        ready = [each for each in pending.values() if each]
        if not ready:
            raise Stuck
        ended.add(draw.choice(ready).pop(0))
    if any(sends or receives for sends, receives in queues.values()):
        raise Stuck
