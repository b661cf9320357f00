"""Reports on made-up result files."""

import base64
import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tabulate")
pytest.importorskip("markdown_it")

from pycoll.bench import bound, report
from pycoll.tune.options import size_label

from .documents import document, record


@pytest.fixture
def made(tmp_path, capsys):
    """Return a function that writes documents to files, runs the report on them, and returns its text."""

    def make(form="md", **documents):
        paths = [tmp_path / f"{name}.json" for name in documents]
        for path, content in zip(paths, documents.values()):
            path.write_text(json.dumps(content))
        report.main([*map(str, paths), "-o", str(tmp_path / "new" / "out"), "--format", form])
        assert capsys.readouterr().out == f"written to {tmp_path / 'new' / 'out' / f'report.{form}'}\n"
        return (tmp_path / "new" / "out" / f"report.{form}").read_text()

    return make


@pytest.fixture
def written(made, monkeypatch):
    """`made` without plots of times and speeds, which take long."""
    monkeypatch.setattr(report, "plots_of", lambda named, primitive: ([], {}))
    return made


def table_rows(text, heading=""):
    """Return the cells of each table row between `heading` and the next heading."""
    below = text[text.index(heading) + len(heading) :]
    lines = re.split(r"^#", below, maxsplit=1, flags=re.M)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_table_has_medians_ratios_and_the_fastest(written):
    rows = table_rows(written(one=document()), "## allreduce")
    start = rows.index(["size", "MPI", "tree", "ring"])
    assert rows[start + 2 :] == [
        ["8 B", "10.0", "★ 5.00 (2.00)", "9.00 (1.11)"],
        ["1 KiB", "10.0", "★ 8.00 (1.25)", "12.0 (0.83)"],
        ["1 MiB", "★ 10.0", "400 (0.03)", "100 (0.10)"],
    ]


def test_summary_names_ranges_of_sizes(written):
    rows = table_rows(written(one=document()), "## allreduce")
    assert rows[0] == ["size", "fastest algorithm of pycoll", "speed relative to MPI"]
    assert rows[2:4] == [["8 B to 1 KiB", "tree", "1.25 to 2.00"], ["1 MiB", "ring", "0.10"]]


def test_environments_are_a_column_for_each_file(written):
    text = written(a=document(2, gpu="H|100"), b=document(4, hosts=["x"]))
    rows = table_rows(text, "# pycoll benchmark report")
    assert rows[0] == ["", "2 ranks", "4 ranks"]
    assert rows[2:4] == [["ranks", "2", "4"], ["hosts", "n1, n2", "x"]]
    assert re.search(r"^\| GPU +\| H\\\|100 +\| - +\|$", text, re.M)


def test_each_file_has_a_summary_below_its_name(written):
    text = written(a=document(2), b=document(4, speed=0.1))
    assert table_rows(text, "#### 2 ranks")[2][:2] == ["8 B to 1 KiB", "tree"]
    assert table_rows(text, "#### 4 ranks")[2] == ["8 B to 1 KiB", "tree", "0.12 to 0.20"]


def test_more_ranks_than_cores_are_warned_of(written):
    warning = "> Warning: 17 ranks on 16 cores."
    assert warning in written(a=document(16), b=document(17)) and "Warning" not in written(a=document(16))


def test_wrong_results_are_shown_and_never_the_fastest(written):
    text = written(one=document(records=[record("tree", 8, 1.0, wrong=3), record("ring", 8, 9.0)]))
    rows = table_rows(text, "## allreduce")
    assert rows[2] == ["8 B", "ring", "1.11"] and rows[-1] == ["8 B", "10.0", "WRONG 1.00 (10.00)", "★ 9.00 (1.11)"]


def test_validated_only(written):
    text = written(one=document(records=[record("tree", 8, None, native=None), record("ring", 8, None, wrong=1)]))
    assert table_rows(text, "## allreduce")[2] == ["8 B", "ok", "WRONG"]
    assert "Nothing was timed" in text


def test_labels_are_what_differs(tmp_path):
    def labels(**documents):
        return list(report.labelled({tmp_path / name / "r.json": each for name, each in documents.items()}))

    assert labels(a=document()) == ["r.json"]
    assert labels(a=document(2), b=document(4)) == ["2 ranks", "4 ranks"]
    assert labels(a=document(2), b=document(4, mpi="Open MPI")) == ["2 ranks, MPICH 5", "4 ranks, Open MPI"]
    assert labels(a=document(commit="x"), b=document()) == ["commit x", "commit e027819"]
    assert labels(a=document(), b=document()) == [str(tmp_path / name / "r.json") for name in "ab"]


def test_before_and_after(written):
    rows = table_rows(written(a=document(commit="old"), b=document(commit="new", speed=2)), "commit old → commit new")
    assert rows[0] == ["size", "tree", "ring", "MPI"]
    assert rows[2] == ["8 B", "2.00 (5.00 → 2.50)", "2.00 (9.00 → 4.50)", "1.00 (10.0 → 10.0)"]


@pytest.mark.parametrize("other", [{"ranks": 8}, {"mpi": "Open MPI"}])
def test_before_and_after_only_with_the_same_ranks_and_mpi(written, other):
    assert "before and after" not in written(a=document(), b=document(**other))


@pytest.mark.parametrize(
    ("other", "curves"), [({"ranks": 8}, 1), ({"ranks": 4}, 0), ({"ranks": 8, "mpi": "Open MPI"}, 0)], ids=str
)
def test_scaling_curves_where_only_the_ranks_differ(made, tmp_path, other, curves):
    text = made(a=document(), b=document(**other))
    assert text.count("### allreduce, by ranks") == curves
    assert (tmp_path / "new" / "out" / "allreduce-by-ranks-0-0.svg").exists() == bool(curves)


@pytest.mark.parametrize(
    ("size", "text"), [(8, "8 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), ((1 << 20) - 4, "1 MiB"), (3 << 30, "3 GiB")]
)
def test_size_label(size, text):
    assert size_label(size) == text


def test_html_has_all_plots_inline_in_two_widths_and_nothing_of_others(made, tmp_path):
    evil = "<script>alert(1)</script>"
    text = made("html", a=document(2, mpi=evil), b=document(4, mpi=evil))
    pictures = re.findall(r'<source media="(.*?)" srcset="(.*?)"><img src="(.*?)" alt="(.*?)"', text)
    assert [says.partition(":")[0] for *_, says in pictures] == [
        "allreduce",
        "allreduce, 2 ranks",
        "allreduce, 4 ranks",
        "allreduce",
    ]
    for media, narrow, wide, _ in pictures:
        assert media == "(max-width: 700px)"
        small, large = (base64.b64decode(each.partition(",")[2]).decode() for each in (narrow, wide))
        assert width(small) < 300 < 600 < width(large)
    assert "<table>" in text and "color-scheme: light dark" in text
    assert "<script" not in text
    assert [path.name for path in (tmp_path / "new" / "out").iterdir()] == ["report.html"]


def width(svg):
    return float(re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)[1])


def test_markdown_has_its_images_beside_it(made, tmp_path):
    images = re.findall(r"!\[.*?\]\((.*?)\)", made(a=document(2), b=document(4)))
    names = ["allreduce", "allreduce-times-0-0", "allreduce-times-0-1", "allreduce-by-ranks-0-0"]
    assert images == [f"{name}.svg" for name in names]
    assert all(b"<svg" in (tmp_path / "new" / "out" / name).read_bytes() for name in images)


def test_names_in_markdown_end_no_image(made):
    text = made(a=document(mpi="](x)"), b=document(mpi="Open MPI"))
    assert r"allreduce, \](x): time" in text


def test_names_of_primitives_do_not_lead_out_of_the_directory(made, tmp_path):
    made(a=document(records=[record("ring", 8, 5.0, "../evil")]))
    assert not list(tmp_path.rglob("evil*")) and not list((tmp_path / "new").glob("*.svg"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[1, 2", "broken JSON"),
        ("[]", "not a result of python -m pycoll.bench"),
        (json.dumps({"environment": {}, "records": []}), "not a result of python -m pycoll.bench"),
        (json.dumps(document() | {"version": 2}), "version 2 of the format"),
        (json.dumps(document(records=[{"primitive": "bcast"}])), "record 1 has no algorithm"),
        (json.dumps(document(records=[record("ring", 8, float("nan"))])), "record 1 has no median"),
        (json.dumps(document(hosts=None)), "environment has no hosts"),
        (None, "no such file"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_refusals(tmp_path, capsys, content, reason):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(document()))
    if content is not None:
        bad.write_text(content)
    with pytest.raises(SystemExit) as ended:
        report.main([str(good), str(bad), "-o", str(tmp_path / "out")])
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert (
        message.startswith(f"python -m pycoll.bench.report: {bad}: ") and reason in message and message.count("\n") == 1
    )
    assert not (tmp_path / "out").exists()


def test_reports_do_not_load_mpi():
    program = (
        "import sys, pycoll.bench.report;"
        "assert not any(name.startswith('mpi4py') for name in sys.modules), 'mpi4py was loaded';"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot was loaded'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_what_links_allow(tmp_path, capsys):
    """Check the bounds on two hosts: at least 0.64 s for an all-reduce of 8 MB at 100 Mbit/s, and none for scans."""
    path = tmp_path / "results.json"
    records = [record("ring", 8_000_000, 704e3), record("mpi", 8_000_000, 1280e3), record("tree", 8, 1.0, "scan")]
    path.write_text(json.dumps(document(records=records)))
    bound.main([str(path), "--rate", "100M"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[3], row[5]) for row in rows] == [("ring", "1.100"), ("mpi", "2.000")]
    with pytest.raises(SystemExit):
        bound.main([str(path), "--rate", "fast"])
