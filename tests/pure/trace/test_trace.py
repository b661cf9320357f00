"""Traces built from the records of ranks: clocks, full ring buffers, missing data, summaries and pictures."""

import itertools
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from pycoll.runtime.recording.recorder import TAG_BITS, Recorder, events_path, meanings_path
from pycoll.trace.__main__ import main
from pycoll.trace.chrome import export
from pycoll.trace.clocks import ClockOffset, fitted
from pycoll.trace.events import InvalidTrace
from pycoll.trace.intervals import common, union
from pycoll.trace.reading import read
from pycoll.trace.report import report
from pycoll.trace.summary import gpu_use, lateness, overlap, uses, waited_for
from pycoll.trace.timeline import MARGIN, WIDTH
from pycoll.trace.training_steps import interval
from tests.tracing import arrows, ids, named, sent, whole

BLOCKING, IN_FLIGHT = 1 << TAG_BITS, 7 << TAG_BITS
MS = 1_000_000
STEPS = [("start", 0, 1), ("start", 0, 0), ("wait", 0, 1), ("combine", 0, 800), ("wait", 0, 0)]


class Ranks:
    """Two ranks that record given events; the clock of rank 1 is ahead by `offset(time)`."""

    def __init__(self, directory, offset=lambda time: 0, capacity=100):
        self.directory, self.offset = directory, offset
        self.recorders = [Recorder(directory, rank, 2, capacity, host="h", library="MPI") for rank in range(2)]
        for rank, recorder in enumerate(self.recorders):
            messages = [(True, 1 - rank, 800, 0), (False, 1 - rank, 800, 0)]
            about = {"collective": "allreduce.recursive_doubling", "comm": "c", "size": 2, "bytes": 800}
            self.program = recorder.number(6, **about, messages=messages, steps=STEPS)

    def record(self, rank, what, begin, end, run=0):
        begin, end = (round(time * MS) for time in (begin, end))
        shift = self.offset if rank else lambda time: 0
        self.recorders[rank].record(what, begin + shift(begin), end + shift(end), run)

    def phase(self, rank, name, begin, end):
        self.record(rank, self.recorders[rank].named("phase", name), begin, end)

    def allreduce(self, rank, times, run, finished=True):
        """Record an all-reduce from the first to the last of `times`, with one step between consecutive times."""
        for step, (begin, end) in enumerate(itertools.pairwise(times)):
            self.record(rank, self.program + 1 + step, begin, end, run)
        if finished:
            self.record(rank, self.program, times[0], times[-1], run)

    def read(self):
        for recorder in self.recorders:
            recorder.stop()
            recorder.close()
        return read(self.directory)


def one_that_is_late(ranks):
    """Record an all-reduce that rank 1 enters 5 ms after rank 0, which waits for it."""
    ranks.allreduce(0, [10, 11, 12, 17, 18, 19], BLOCKING)
    ranks.allreduce(1, [15, 16, 16.5, 17, 18, 18.5], BLOCKING)
    return ranks


def test_it_nests_and_messages_find_each_other(tmp_path):
    ranks = one_that_is_late(Ranks(tmp_path))
    ranks.phase(0, "forward", 9, 20)
    ranks.allreduce(0, [30, 31, 32, 33, 34, 35], IN_FLIGHT)
    ranks.allreduce(1, [30, 31, 32, 33, 34, 35], IN_FLIGHT)
    export(ranks.read(), tmp_path / "trace.json")
    events = whole(tmp_path)
    assert len(ids(events, "s")) == 4 and sent(events, 0) == sent(events, 1) == [800, 800]
    assert named(events, "collective", "X", 0) == ["allreduce.recursive_doubling"]
    assert named(events, "collective", "b", 0) == ["allreduce.recursive_doubling", "round 1"]
    assert sorted(arrows(events)) == [  # each from the earlier span to the later one, as drawn by Perfetto
        ((2e3, 0, "send to 1"), (7999.999, 1, "from 0")),  # relative to the first event, at 9 ms
        ((7e3, 1, "send to 0"), (7999.999, 0, "from 1")),
        ((22e3, 0, "send to 1"), (23999.999, 1, "from 0")),
        ((22e3, 1, "send to 0"), (23999.999, 0, "from 1")),
    ]


def test_messages_between_two_ranks_match_in_the_order_in_which_they_are_started(tmp_path):
    ranks = Ranks(tmp_path)
    steps = [("start", 0, 1), ("start", 0, 0), ("wait", 0, 1), ("wait", 0, 0)]
    for rank, recorder in enumerate(ranks.recorders):
        messages = [(rank == 0, 1 - rank, 8, 0)] * 2
        about = {"collective": "bcast.chain", "comm": "c", "size": 2, "bytes": 16}
        ranks.program = recorder.number(5, **about, messages=messages, steps=steps)
        ranks.allreduce(rank, [0, 1, 2, 4 + rank, 6 + rank], BLOCKING)
    export(ranks.read(), tmp_path / "trace.json")
    times = [event["ts"] for event in whole(tmp_path) if event["ph"] in "sf"]
    assert times == [0, 4999.999, 1000, 6999.999]


@pytest.mark.parametrize("drift", [0, 100e-6, -3e-3])
def test_clocks_are_aligned(tmp_path, drift):
    def ahead(time):
        return round(50 * MS + drift * time)

    ranks = Ranks(tmp_path, ahead)
    for time in (0, 1000 * MS):
        ranks.recorders[0].write(clock=ClockOffset(1, time + ahead(time), ahead(time), 1000))
    trace = one_that_is_late(ranks).read()
    begins = [trace.ranks[rank].collectives[0].begin for rank in range(2)]
    assert begins == pytest.approx([0, 5 * MS], abs=0 if not drift else 100)


def test_what_may_be_an_error_of_the_measurement_is_not_corrected():
    assert fitted([ClockOffset(1, 0, 900, 1000)]).corrected(5) == 5
    steady = fitted([ClockOffset(1, 0, 50_000, 1000), ClockOffset(1, MS, 50_900, 500)])
    assert (steady.offset, steady.drift) == (50_900, 0)


def test_a_ring_that_is_full_keeps_the_last(tmp_path):
    ranks = Ranks(tmp_path, capacity=10)
    for number in range(25):
        ranks.phase(0, f"{number}", number, number + 1)
    for trace in (read(tmp_path), ranks.read()):  # during recording, and after it
        assert [phase.what for phase in trace.ranks[0].phases] == [f"{number}" for number in range(15, 25)]
        assert (trace.ranks[0].dropped, trace.ranks[1].dropped) == (15, 0)
    last = read(tmp_path, most=6).ranks[0]
    assert ([phase.what for phase in last.phases], last.dropped) == (["22", "23", "24"], 22)
    assert events_path(tmp_path, 0).stat().st_size == 8 + 10 * 40
    assert events_path(tmp_path, 1).stat().st_size == 8


def test_nothing_is_recorded_after_the_end(tmp_path):
    ranks = Ranks(tmp_path)
    ranks.read()
    ranks.phase(0, "late", 0, 1)
    assert read(tmp_path).ranks[0].phases == []


def test_what_a_killed_rank_leaves(tmp_path):
    ranks = one_that_is_late(Ranks(tmp_path))
    ranks.allreduce(0, [20, 21, 22], BLOCKING + 1, finished=False)
    with meanings_path(tmp_path, 0).open("a") as file:
        file.write('{"number": 99, "pha')  # killed while writing a line
    meanings_path(tmp_path, 1).write_text("")  # killed just after its start
    trace = read(tmp_path)
    assert trace.missing == [1] and [one.finished for one in trace.ranks[0].collectives] == [True, False]
    export(trace, tmp_path / "trace.json")
    assert ids(whole(tmp_path), "s") == []


def test_who_waited_for_whom_and_who_was_late(tmp_path):
    trace = one_that_is_late(Ranks(tmp_path)).read()
    assert waited_for(trace.ranks[0]) == {1: 6 * MS} and waited_for(trace.ranks[1]) == {0: 1 * MS}
    late = lateness(trace)
    assert (late[1].last, late[1].late, late[0].last, late[0].late) == (1, 5 * MS, 0, 0)
    (use,) = uses(trace)
    assert (use.calls, use.ranks, use.total, use.median, use.nbytes) == (1, 2, 9000, 9000, 800)
    assert use.algbw == pytest.approx(800 / 9000e-6 / 1e9) and use.busbw == use.algbw  # the factor 2*(p-1)/p is 1


def test_waits_for_what_is_in_flight(tmp_path):
    ranks = Ranks(tmp_path)
    ranks.allreduce(0, [10, 11, 12, 12.5, 13, 13.5], IN_FLIGHT)
    ranks.phase(0, "wait", 2, 20)
    assert waited_for(ranks.read().ranks[0]) == {1: 1 * MS}  # the steps in flight run one after the other


def test_overlap_is_communication_in_flight_while_passes_are_computed(tmp_path):
    ranks = Ranks(tmp_path)
    ranks.allreduce(0, [10, 12, 14, 16, 18, 20], IN_FLIGHT)
    ranks.phase(0, "backward", 5, 16)
    ranks.phase(0, "wait", 15, 20)
    ranks.phase(0, "optimizer", 0, 30)
    ranks.allreduce(0, [12, 13, 14], BLOCKING)
    assert overlap(ranks.read().ranks[0]) == (10 * MS, 2 * MS, 6 * MS)


def test_waiting_for_a_persistent_collective_is_no_overlap(tmp_path):
    ranks = Ranks(tmp_path)
    ranks.allreduce(0, [0, 1, 2, 10, 11, 20], IN_FLIGHT)  # its waits are calls, not phases
    ranks.phase(0, "forward", 0, 20)
    flying, computing, waited = overlap(ranks.read().ranks[0])
    assert flying == 20 * MS and computing + waited == flying and waited >= 8 * MS


def test_launches_and_waits_of_a_gpu(tmp_path):
    """A collective that launches two kernels, which run while it waits for a message and then for the GPU."""
    ranks = Ranks(tmp_path)
    launches = [("launch follow", 0, None), ("launch combine", 0, 80)]
    steps = [("start", 0, 0), *launches, ("wait", 0, 0), ("finish", 0, None)]
    about = {"collective": "allreduce.ring", "comm": "c", "size": 2, "bytes": 80, "messages": [(False, 1, 80, 0)]}
    program = ranks.recorders[0].number(1 + len(steps), **about, steps=steps)
    for step, (begin, end) in enumerate(itertools.pairwise([9, 10, 11, 13, 16, 20])):
        ranks.record(0, program + 1 + step, begin, end, BLOCKING)
    ranks.record(0, program, 9, 20, BLOCKING)
    ranks.allreduce(1, [10, 11, 12, 17, 18, 19], BLOCKING)
    trace = ranks.read()
    assert gpu_use(trace.ranks[0]) == (2, 3 * MS, 4 * MS, 11 * MS)
    assert gpu_use(trace.ranks[1]) == (0, 0, 0, 0)
    row = next(line for line in report(trace).splitlines() if "%" in line)
    assert row.split() == ["0", "2", "3.000", "4.000", "11.000", "27%", "36%"]


def test_ranks_without_rank_0(tmp_path):
    ranks = one_that_is_late(Ranks(tmp_path))
    ranks.read()
    for path in (meanings_path(tmp_path, 0), events_path(tmp_path, 0)):
        path.unlink()
    trace = read(tmp_path)
    assert trace.missing == [0] and list(trace.ranks) == [1]
    events_path(tmp_path, 1).write_bytes(b"")
    with pytest.raises(InvalidTrace, match="no trace was found"):
        read(tmp_path)


def test_intervals():
    assert union([(5, 7), (1, 3), (2, 4), (7, 8), (9, 9)]) == [(1, 4), (5, 8)]
    assert common([(1, 4), (5, 9)], [(0, 2), (3, 6), (8, 20)]) == [(1, 2), (3, 4), (5, 6), (8, 9)]


def test_the_command(tmp_path, capsys):
    ranks = one_that_is_late(Ranks(tmp_path))
    ranks.phase(1, "forward <1>", 1, 9)
    ranks.read()
    main([str(tmp_path)])
    assert "slowest: rank 1, entered 1 of 1 collectives last" in capsys.readouterr().out
    picture = tmp_path / "timeline.svg"
    main([str(tmp_path), "-o", str(picture)])
    drawn = ElementTree.parse(picture).getroot()
    titles = [title.text for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "forward <1>: 8000.000 \u00b5s" in titles and len(titles) == 2 * (1 + len(STEPS)) + 1
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}line"))) == 2
    main([str(tmp_path), "-o", str(picture), "--from", "0", "--to", "2"])
    assert picture.read_text().count("<title>") == 1
    assert capsys.readouterr().out == f"written to {picture}\n" * 2
    with pytest.raises(SystemExit, match=r"no events after 30 ms: the trace ends after 18\.000 ms"):
        main([str(tmp_path), "-o", str(picture), "--from", "30"])
    main([str(tmp_path), "-o", str(tmp_path / "trace.json")])
    assert whole(tmp_path)


def attributes(picture, name, class_):
    drawn = ElementTree.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}" + name)
    return [one for one in drawn if one.get("class") == class_]


@pytest.mark.parametrize(
    "begin, end, labels",
    [
        ("0", "18", ["0", "2", "4", "6", "8", "10", "12", "14", "16", "18"]),
        ("3.3", "4", ["3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0"]),
        ("9.9995", "10.0015", ["9.9996", "9.9998", "10.0000", "10.0002", "10.0004", "10.0006", "10.0008", "10.0010"]),
    ],
)
def test_ticks_of_the_picture_are_round(tmp_path, begin, end, labels):
    ranks = Ranks(tmp_path)
    for rank in range(2):
        ranks.phase(rank, "forward", 0, 20)
    ranks.read()
    main([str(tmp_path), "-o", str(tmp_path / "timeline.svg"), "--from", begin, "--to", end])
    ticks = [one.text for one in attributes(tmp_path / "timeline.svg", "text", "label") if one.get("text-anchor")]
    assert ticks[: len(labels)] == labels and len(ticks) <= 11


def test_arrows_run_between_the_bands_of_ranks(tmp_path):
    one_that_is_late(Ranks(tmp_path)).read()
    main([str(tmp_path), "-o", str(tmp_path / "timeline.svg")])
    root = ElementTree.parse(tmp_path / "timeline.svg").getroot()
    order = [one.get("class") or one.tag.rpartition("}")[2] for one in root]
    assert order.index("hop") < order.index("g")  # elements drawn first are below the others
    bands = [float(one.get("transform").split()[1][:-1]) for one in root.findall("{*}g")]
    heights = [
        max(float(bar.get("y")) + float(bar.get("height")) for bar in band.findall("{*}rect"))
        for band in root.findall("{*}g")
    ]
    gap = bands[0] + heights[0], bands[1]
    for hop in attributes(tmp_path / "timeline.svg", "line", "hop"):
        assert hop.get("marker-end") == "url(#tip)" and 'id="tip"' in (tmp_path / "timeline.svg").read_text()
        ys = float(hop.get("y1")), float(hop.get("y2"))
        assert sorted(ys) == pytest.approx(gap, abs=1.5)


def test_the_legend_has_the_kinds_that_are_drawn(tmp_path):
    ranks = one_that_is_late(Ranks(tmp_path))
    ranks.phase(1, "optimizer", 1, 9)
    ranks.read()
    main([str(tmp_path), "-o", str(tmp_path / "timeline.svg")])
    texts = [one.text for one in attributes(tmp_path / "timeline.svg", "text", "label") if not one.get("text-anchor")]
    assert texts == ["ms", "optimizer", "blocking collectives", "waiting", "starting messages", "combining, copying"]


def test_steps_of_drivers(tmp_path):
    ranks = Ranks(tmp_path)
    for rank, late in enumerate((0, 1)):
        for begin in (2, 12, 22):
            ranks.phase(rank, "forward", begin + late, begin + 4)
            ranks.phase(rank, "optimizer", begin + 6, begin + 8 + late)
    trace = ranks.read()
    start = 2 * MS  # times are relative to the first event
    assert interval(trace, 1, 1) == (0, 11 * MS - start) and interval(trace, 2, 3) == (12 * MS - start, 31 * MS - start)
    with pytest.raises(InvalidTrace, match=r"steps 3-4: the trace has steps 1 to 3"):
        interval(trace, 3, 4)
    main([str(tmp_path), "-o", str(tmp_path / "timeline.svg"), "--steps", "2"])
    (heading,) = attributes(tmp_path / "timeline.svg", "text", "title")
    assert heading.text.startswith("10.000 to 19.000 ms of 29.000")


@pytest.mark.parametrize("options, numbers, length", [([], ["1", "2", "3"], 29), (["--steps", "2-3"], ["2", "3"], 19)])
def test_the_picture_numbers_the_steps(tmp_path, options, numbers, length):
    """A tick at the begin of each step on the first rank, with the number that --steps takes."""
    ranks = Ranks(tmp_path)
    for rank, late in enumerate((0, 1)):
        for begin in (2, 12, 22):
            ranks.phase(rank, "forward", begin + late, begin + 4)
            ranks.phase(rank, "optimizer", begin + 6, begin + 8 + late)
    ranks.read()
    picture = tmp_path / "timeline.svg"
    main([str(tmp_path), "-o", str(picture), *options])
    found = [one.text for one in attributes(picture, "text", "label step")]
    assert found == [*numbers, "step"]
    ticks = attributes(picture, "path", "tick step")
    xs = [float(one.get("d").split()[0].removeprefix("M")) for one in ticks]
    assert xs == pytest.approx(
        [MARGIN + (WIDTH - MARGIN) * 10 * place / length for place in range(len(numbers))], abs=0.1
    )
    tops = {float(one.get("y")) for one in attributes(picture, "text", "label step")}
    axis = {float(one.get("y")) for one in attributes(picture, "text", "label") if one.get("text-anchor")}
    assert len(tops) == len(axis) == 1 and max(tops) < min(axis), "the numbers are above the time axis"


def test_of_many_steps_round_numbers_are_shown(tmp_path):
    ranks = Ranks(tmp_path, capacity=1000)
    for begin in range(200):
        ranks.phase(0, "forward", begin, begin + 0.5)
        ranks.phase(0, "optimizer", begin + 0.5, begin + 1)
    ranks.read()
    main([str(tmp_path), "-o", str(tmp_path / "timeline.svg")])
    *numbers, _ = [one.text for one in attributes(tmp_path / "timeline.svg", "text", "label step")]
    assert numbers == [str(number) for number in range(10, 201, 10)]


def test_a_step_of_the_parameter_server_ends_with_pull(tmp_path):
    ranks = Ranks(tmp_path)
    for begin in (0, 10):
        ranks.phase(0, "push", begin, begin + 1)
        ranks.phase(0, "pull", begin + 2, begin + 6)
        ranks.phase(1, "optimizer", begin + 3, begin + 4)  # the optimizer of the server
    trace = ranks.read()
    assert interval(trace, 2, 2) == (10 * MS, 16 * MS)


def test_a_trace_without_steps(tmp_path):
    ranks = one_that_is_late(Ranks(tmp_path))
    ranks.phase(0, "forward", 1, 2)
    with pytest.raises(InvalidTrace, match="no phase 'pull' or 'optimizer' was recorded"):
        interval(ranks.read(), 1, 1)


@pytest.mark.parametrize("home", ["import pycoll", "import pycoll.trace", "from pycoll import trace; import pycoll"])
def test_no_mpi_is_needed(tmp_path, home):
    one_that_is_late(Ranks(tmp_path)).read()
    program = f"""{home}, sys; from pycoll.trace.__main__ import main
main(sys.argv[1:])
assert callable(pycoll.trace) and pycoll.trace.phase and "mpi4py" not in sys.modules"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=240, capture_output=True)


def test_what_is_no_trace_is_refused(tmp_path, capsys):
    with pytest.raises(InvalidTrace, match="no trace was found"):
        read(tmp_path)
    meanings_path(tmp_path, 0).write_text(json.dumps({"ranks": 1}) + "\n")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert "no trace" in str(ended.value) and "\n" not in str(ended.value)


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "x.png"],
        ["--from", "-1"],
        ["--from", "3", "--to", "2"],
        *(["-o", "x.svg", "--steps", steps] for steps in ("0", "7-5", "-3", "a", "1-b", "1-2-3")),
        ["-o", "x.svg", "--to", "3", "--steps", "2"],
        ["-o", "x.json", "--steps", "2"],
    ],
)
def test_nonsense_is_refused(tmp_path, capsys, options):
    with pytest.raises(SystemExit):
        main([str(tmp_path), *options])
    error = capsys.readouterr().err
    assert options[-1] in error or "--steps" in error
