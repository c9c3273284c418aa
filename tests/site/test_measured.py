"""Measurements: filed under their device, shown by pages and stories, refused with a reason."""

import contextlib
import inspect
import json
import math
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import measure
import pytest
import torch
from bs4 import BeautifulSoup
from cases import every
from measuring import (
    benchmarks,
    clock,
    comparisons,
    filing,
    kernels,
    machine,
    peers,
    rounds,
    variants,
)
from mhsite.pages import measured, tables
from mhsite.pages.page import page_paths, parse, read as read_page, skeleton
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, STORIES, SourceError

from mhattn.lessons.files import located

FILES = measured.files()
each_file = every("file", FILES)
GPU = {"device": "NVIDIA H100 80GB HBM3", "host": "Intel(R) Xeon(R)", "cuda": "12.8", "threads": 1}
GPU |= {
    "python": "3.12.1",
    "torch": "2.13.0",
    "commit": "abcdef0",
    "code": "scripts/measuring/benchmarks.py",
    "date": "2026-12-24",
    "rounds": 7,
}


def said(file):
    return json.loads(file.read_text(encoding="utf-8"))


# What is there


@pytest.mark.parametrize("language", LANGUAGES)
def test_measurements_are_what_pages_show(language):
    pages = [read_page(DOCS / language / page) for page in page_paths(language)]
    tables = {part.value for page in pages for part in skeleton(page) if part.kind == "table"}
    kind = "measured "
    shown = {table.removeprefix(kind).split()[0] for table in tables if table.startswith(kind)}
    assert shown == {file.stem for file in FILES} == set(measure.BENCHMARKS)


@each_file
def test_measurements_say_where_they_come_from(file):
    found = measured.found(file)
    assert found == said(file)
    assert set(found) == {"provenance", "columns", "units", "rows"}
    assert file.parent.name == measured.folder(found["provenance"])
    assert "dirty" not in found["provenance"]["commit"], "measured with code that is in no commit"


@each_file
def test_measurements_link_to_the_code_that_made_them(file):
    """As it was then; where it lies now, of the benchmarks that there are."""
    about = measured.found(file)["provenance"]
    assert measured.code_url(about).endswith(f"/blob/{about['commit']}/{about['code']}")
    assert Path(inspect.getsourcefile(rounds.BENCHMARKS[file.stem])).is_file()
    if (then := about["code"]) and shutil.which("git"):
        asked = ["git", "show", f"{about['commit']}:{then}"]
        shown = subprocess.run(asked, cwd=ROOT, capture_output=True, encoding="utf-8")
        name = file.stem.replace("-", "_")
        assert shown.returncode or f"\ndef {name}(rounds: int" in shown.stdout


def drawn_files():
    """Stories that draw measurements, each with a file that it reads: by its path or in a list."""
    found = []
    for story in sorted(STORIES.glob("*.pycon")):
        text = story.read_text(encoding="utf-8")
        asked = re.findall(r'data_file\(f?"measured/([^"]*)\.json"', text)
        if any("{" in name for name in asked):
            before = text[: text.index('data_file(f"measured/{')]
            *_, names = re.findall(r"^>>> names = (.+(?:\n\.\.\. .+)*)$", before, re.M)
            asked += re.findall(r'"([\w-]+)"', names)
        found += [(story, located(f"measured/{n}.json")) for n in asked if "{" not in n]
    return found


@pytest.mark.parametrize(
    ("story", "file"), drawn_files(), ids=lambda path: path.name.replace(".", "-")
)
def test_a_story_prints_which_measurement_it_drew(story, file):
    """A result in the cache knows nothing of a newer measurement, but its story must."""
    about = said(file)["provenance"]
    line = rf"^{file.stem} +{about['date']} +{about['commit']} +{re.escape(about['device'])}$"
    assert re.search(line, story.read_text(encoding="utf-8"), re.MULTILINE)


def test_drawn_measurements_are_found():
    assert len(drawn_files()) == 10


# A second device


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of measurements, with one benchmark on one device."""
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    monkeypatch.setattr(filing, "FOLDER", tmp_path)
    monkeypatch.setattr(measured, "DEVICE", "amd-epyc")
    monkeypatch.setattr(filing.fingerprints, "fingerprint", lambda *_: "of its code")
    (tmp_path / "amd-epyc").mkdir()
    found = {"columns": ["length", "ours"], "units": {"ours": "seconds"}, "rows": [[8, [2, 1, 3]]]}
    about = {key: value for key, value in GPU.items() if key not in ("host", "cuda")}
    about |= {"device": "AMD EPYC", "rounds": 5}
    file = tmp_path / "amd-epyc" / "layers.json"
    file.write_text(json.dumps({"provenance": about, **found}), encoding="utf-8")
    return tmp_path


def second(folder, found=None, path="nvidia-h100-80gb-hbm3/layers.json"):
    """The same benchmark of another machine, as a reader sends it."""
    if found is None:
        found = said(folder / "amd-epyc" / "layers.json") | {"provenance": GPU, "rows": [[8, 0.5]]}
    file = folder / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(found if isinstance(found, str) else json.dumps(found), encoding="utf-8")
    return file


def shown(language="en", headings="$n$ | ours"):
    (block,) = parse(f"<!-- measured layers | {headings} -->\n").blocks
    return tables.table(block, language, "https://site/{}".format)


def test_one_device_is_a_table_and_a_line(folder):
    first, rule, row, empty, origin, mark = shown().splitlines()
    assert (first, row) == ("| $n$ | ours |", "| 8 | 2.00 s (1.00–3.00) |")
    assert (rule, empty, mark) == ("| --- | --: |", "", "{ .mh-measured }")
    assert origin.startswith("Measured on AMD EPYC, threads: 1, torch 2.13.0, 2026-12-24. ")
    assert "(https://site/data/measured/amd-epyc/layers.json)" in origin


def test_a_page_may_ask_for_the_rows_with_some_cells(folder):
    file = folder / "amd-epyc" / "layers.json"
    found = said(file)
    found["columns"] = ["threads", *found["columns"]]
    found["rows"] = [[threads, *row] for threads in (1, 2) for row in found["rows"]]
    file.write_text(json.dumps(found), encoding="utf-8")
    (block,) = parse("<!-- measured layers threads=2 | $n$ | ours -->\n").blocks
    lines = tables.table(block, "en", str).splitlines()
    assert lines[0] == "| $n$ | ours |"
    assert lines[2:4] == ["| 8 | 2.00 s (1.00–3.00) |", ""]
    for asked, why in (("threads=3", "no row has threads=3"), ("cores=1", "cores=1: columns are")):
        (block,) = parse(f"<!-- measured layers {asked} | $n$ | ours -->\n").blocks
        with pytest.raises(SourceError, match=why):
            tables.table(block, "en", str)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_second_device_needs_its_file_and_nothing_else(folder, language):
    alone = shown(language)
    second(folder)
    tables = shown(language)
    first, other = tables.split("**NVIDIA H100 80GB HBM3**\n{ .mh-device }\n\n")
    about = {"en": ", which the text is about", "zh": "（正文所说的设备）"}
    name = "**AMD EPYC**" + about[language]
    assert first.strip() == f"{name}\n{{ .mh-device }}\n\n{alone}"
    lines = other.splitlines()
    assert lines[:3] == [*alone.splitlines()[:2], "| 8 | 500 ms |"]
    assert "data/measured/nvidia-h100-80gb-hbm3/layers.json" in lines[4]
    host = {"en": "HBM3, host Intel(R) Xeon(R), threads", "zh": "HBM3，主机 Intel(R) Xeon(R)，线程"}
    cuda = {"en": "torch 2.13.0, CUDA 12.8, 2026", "zh": "torch 2.13.0，CUDA 12.8，2026"}
    assert host[language] in lines[4]
    assert cuda[language] in lines[4]


def test_the_device_of_the_text_comes_first_and_the_others_by_name(folder):
    for device in ("A", "Z", "M"):
        found = said(folder / "amd-epyc" / "layers.json")
        found["provenance"]["device"] = device
        second(folder, found, f"{device.lower()}/layers.json")
    assert re.findall(r"^\*\*(.+)\*\*", shown(), re.M) == ["AMD EPYC", "A", "M", "Z"]
    (folder / "amd-epyc" / "layers.json").unlink()
    assert re.findall(r"^\*\*(.+)\*\*$", shown(), re.M) == ["A", "M", "Z"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_devices_stand_side_by_side_in_one_chart(folder, language):
    first = said(folder / "amd-epyc" / "layers.json")
    first["rows"] = [[n, [2 * n, n, 3 * n]] for n in (8, 64, 512)]
    (folder / "amd-epyc" / "layers.json").write_text(json.dumps(first), encoding="utf-8")
    assert "<svg" not in shown(language)
    rows = [[n, [n / 10, n / 20, n / 5]] for n in (64, 512, 4096)]  # sizes of its own
    file = second(folder, first | {"provenance": GPU, "rows": rows})
    assert "<svg" not in shown(language), "a GPU beside a CPU has other work"
    file.unlink()
    about = {key: value for key, value in GPU.items() if key not in ("host", "cuda")}
    about |= {"device": "Xeon", "sizes": "E = 4096"}
    file = second(folder, first | {"provenance": about, "rows": rows}, "xeon/layers.json")
    assert "<svg" not in shown(language), "so has a CPU with other sizes"
    del about["sizes"]
    second(folder, first | {"provenance": about, "rows": rows}, "xeon/layers.json")
    chart = BeautifulSoup(shown(language), "html.parser").svg
    texts = [text.text for text in chart.select("text")]
    assert texts[:2] == ["AMD EPYC", "Xeon"]
    assert texts[-2:] == ["64", "512"]  # what both measured
    circles, squares = chart.select("circle")[1:], chart.select("rect")[1:]
    assert (len(circles), len(squares)) == (2, 2)
    x = [float(mark["cx"]) for mark in circles]
    to_left = [a - float(mark["x"]) - 4 for a, mark in zip(x, squares, strict=True)]
    assert to_left == pytest.approx([to_left[0]] * 2, abs=0.2)  # a factor is a distance
    assert to_left[0] / (x[1] - x[0]) == pytest.approx(math.log(20) / math.log(8), abs=0.01)
    assert all(
        float(mark["cy"]) < float(other["y"]) + 4
        for mark, other in zip(circles, squares, strict=True)
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_columns_of_one_device_are_a_chart(language):
    """Each number is where the axis says, each column has a mark of its own, no row is left out."""
    headings = ["kind", "$S$ = 1024", "$S$ = 8192"]
    asked = "variants-decode threads=1 batch=1 type=bfloat16 chart=nvidia"
    soup = BeautifulSoup(measured.markdown(asked, headings, language, str), "html.parser")
    texts = [each.get_text() for each in soup.find_all("text")]
    assert {"S = 8192", "S = 32768", "MHA", "MLA", "linear"} <= set(texts)
    assert "H100" in soup.find("figcaption").get_text()
    ticks = {
        float(each.get_text().replace(",", "")): float(each["x"])
        for each in soup.find_all("text", {"text-anchor": "middle"})
    }
    (low, left), (high, right) = min(ticks.items()), max(ticks.items())
    file = next(f for f in measured.files("variants-decode") if "nvidia" in f.parent.name)
    rows = [r for r in measured.found(file)["rows"] if r[:3] == ["bfloat16", 1, 1]]
    circles = [float(each["cx"]) for each in soup.find_all("circle")[1:]]  # behind the legend's
    assert len(circles) == len(rows)
    for x, row in zip(circles, rows, strict=True):
        share = math.log(row[4][0] / low) / math.log(high / low)
        assert x == pytest.approx(left + share * (right - left), abs=0.2)
    with pytest.raises(SourceError, match="chart=tpu"):
        measured.markdown(asked.replace("nvidia", "tpu"), headings, language, str)


def test_files_of_all_devices_can_be_downloaded(folder):
    first, new = folder / "amd-epyc" / "layers.json", second(folder)
    names = [
        "data/measured/amd-epyc/layers.json",
        "data/measured/nvidia-h100-80gb-hbm3/layers.json",
    ]
    assert measured.published() == dict(zip(names, (first, new), strict=True))
    second(folder, "{}")
    with pytest.raises(SourceError, match=re.escape(f"{new}: provenance must be a dict, got None")):
        measured.published()


def changed(key, value, inside=None):
    """What a reader sends, with one entry changed, or taken out by None."""

    def change(found):
        place = found if inside is None else found[inside]
        place[key] = value
        if value is None:
            del place[key]
        return found

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        *[
            (changed(key, None, "provenance"), f"provenance must say {key}, got None")
            for key in ("device", "threads", "python", "torch", "commit", "code", "date", "rounds")
        ],
        (changed("rounds", "7", "provenance"), "provenance must say rounds, got '7'"),
        (changed("rounds", True, "provenance"), "provenance must say rounds, got True"),
        (changed("cores", "two", "provenance"), "provenance must say cores, got 'two'"),
        (changed("cuda", "", "provenance"), "provenance must say cuda, got ''"),
        (changed("owner", "me", "provenance"), "provenance has the unknown owner"),
        (changed("interval", "some", "provenance"), "interval must be one of quartiles, median"),
        (changed("state", "idle", "provenance"), "provenance must say state, got 'idle'"),
        (
            changed("machine", {"l2": 1}, "provenance"),
            "must lie in docs/data/measured/nvidia-h100-",
        ),
        *[(changed(key, None), f"{key} must be a ") for key in ("columns", "units", "rows")],
        (changed("rows", []), "rows is empty"),
        (changed("rows", [[8, 1.0], [8]]), r"rows\[1\] must have 2 cells, got \[8\]"),
        (changed("rows", [8]), r"rows\[0\] must have 2 cells, got 8"),
        *[
            (changed("rows", [[8, bad]]), r"rows\[0\] must hold text, a number, or median")
            for bad in (None, True, {}, [1, 2], [1, 2, 3], [3, 1, 2], ["1", "0", "2"], float("nan"))
        ],
        (changed("time", "seconds", "units"), "units gives 'time' the unit 'seconds'"),
        (changed("ours", "hours", "units"), "units gives 'ours' the unit 'hours'"),
        (changed("device", "H200", "provenance"), "must lie in docs/data/measured/h200, after"),
        (lambda found: json.dumps(found)[:-1], "Expecting"),
        (lambda found: [found], "must be an object, got list"),
        (changed("columns", ["length", "theirs"]), "units gives 'ours'"),
        (changed("columns", ["heads", "ours"]), "columns and units must be those of amd-epyc"),
        (changed("units", {}), "columns and units must be those of amd-epyc"),
    ],
)
def test_a_foreign_file_that_is_wrong_is_named_with_the_reason(folder, change, why):
    found = said(folder / "amd-epyc" / "layers.json") | {"provenance": dict(GPU)}
    file = second(folder, change(found))
    with pytest.raises(SourceError, match=f"^{re.escape(str(file))}: {why}"):
        shown()


def test_a_file_in_no_folder_is_told_where_it_belongs(folder):
    second(folder, said(folder / "amd-epyc" / "layers.json"), "layers.json")
    with pytest.raises(SourceError, match="must lie in docs/data/measured/amd-epyc, after its"):
        shown()


def test_versions_in_the_names_of_columns_may_differ(folder):
    first = said(folder / "amd-epyc" / "layers.json")
    for device, column in (("AMD EPYC", "ours 1.2.3.post4"), ("A", "ours 2.0"), ("B", "ours")):
        found = first | {"columns": ["length", column], "units": {column: "seconds"}}
        found["provenance"] = GPU | {"device": device}
        second(folder, found, f"{measured.slug(device)}/layers.json")
    assert shown().count("2.00 s") == 3


# Measuring


@pytest.mark.parametrize(
    ("device", "folder"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon-cpu-2-20ghz"),
        ("AMD Ryzen 9 7950X 16-Core Processor ", "amd-ryzen-9-7950x-16-core-processor"),
        ("飞腾 D2000/8", "飞腾-d2000-8"),
        ("../x", "x"),
    ],
)
def test_a_folder_has_the_name_of_its_device(device, folder):
    assert measured.slug(device) == folder


def test_a_measurement_is_written_whole_and_read_back(folder):
    found = {"columns": ["n"], "units": {}, "rows": [[1], [2]], "provenance": GPU}
    found["provenance"] = GPU | {"device": "处理器"}
    path = filing.write("name", found)
    assert path == folder / "处理器" / "name.json"
    assert [file.name for file in path.parent.iterdir()] == ["name.json"]
    assert measured.found(path) == found


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["measure.py", *arguments])
    return measure.main()


def test_measuring_files_what_pages_can_show(folder, monkeypatch, capsys):
    """With threads that vary, the benchmark itself says which it used."""
    made = {"columns": ["n"], "units": {}, "rows": [[1]], "provenance": {"threads": "1, 2"}}
    monkeypatch.setitem(rounds.BENCHMARKS, "layers", lambda rounds: dict(made))
    assert run(monkeypatch, "layers", "--rounds", "6") == 0
    about = filing.provenance(6, run)
    (file,) = (path for path in folder.rglob("*.json") if said(path)["columns"] == ["n"])
    found = measured.found(file)["provenance"]
    assert stable(found) == stable(about | {"threads": "1, 2"})
    assert found["interval"] == measured.OF_MEDIAN
    assert found["machine"]["cores"] == found["cores"] >= 1
    assert f"filed under {measured.folder(about)}" in capsys.readouterr().out


def stable(about):
    """All of a provenance but the load and the clock, which change from one moment to the next."""
    return about | {"state": sorted(about["state"])}


def test_threads_are_set_before_and_told_as_they_were(folder, monkeypatch):
    seen = []

    def benchmark(rounds):
        seen.append(torch.get_num_threads())
        return {"columns": ["n"], "units": {}, "rows": [[1]]}

    before = torch.get_num_threads()
    monkeypatch.setitem(rounds.BENCHMARKS, "layers", benchmark)
    torch.set_num_threads(3)
    try:
        assert run(monkeypatch, "layers") == 0
    finally:
        torch.set_num_threads(before)
    (file,) = (path for path in folder.rglob("*.json") if said(path)["columns"] == ["n"])
    assert seen == [said(file)["provenance"]["threads"]] == [1]


def test_a_benchmark_that_fails_leaves_the_others_their_turn(folder, monkeypatch, capsys):
    def fails(rounds):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setitem(rounds.BENCHMARKS, "layers", fails)
    made = {"columns": ["n"], "units": {}, "rows": [[1]]}
    monkeypatch.setitem(rounds.BENCHMARKS, "flex", lambda rounds, device="cpu": dict(made))
    monkeypatch.delitem(rounds.ANYWHERE, "flex")
    assert run(monkeypatch, "layers", "flex") == 1
    assert [path.stem for path in folder.rglob("*.json")].count("flex") == 1
    assert "did not converge" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--rounds", "5"], "rounds must be at least 6, got 5"),
        (["--device", "gpu"], "device must be cpu, cuda or cuda:<number>, got 'gpu'"),
        (["--device", "mps"], "got 'mps': nothing here waits until another has finished"),
        (["--device", "xpu"], "got 'xpu': nothing here waits until another has finished"),
        (["--device", "cuda:7"], "there is no device 'cuda:7'; torch sees "),
    ],
)
def test_what_cannot_be_measured_is_refused_before_the_work(monkeypatch, capsys, arguments, why):
    monkeypatch.setattr(measure, "measure", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert why in capsys.readouterr().err


def test_the_beginning_of_names_asks_for_all_that_begin_so(folder, monkeypatch):
    asked = []

    def benchmark(name):
        def run_it(rounds, device="cpu"):
            asked.append(name)
            return {"columns": ["n"], "units": {}, "rows": [[1]]}

        return run_it

    for name in rounds.BENCHMARKS:
        monkeypatch.setitem(rounds.BENCHMARKS, name, benchmark(name))
    run(monkeypatch, "variants", "peers")
    names = ["forward", "training", "memory", "decode"]
    assert asked == [*(f"variants-{name}" for name in names), "peers"]


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs that torch seems to see; what is done with them is noted."""
    done = []
    about = {"major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 140 * 2**30}
    about |= {"L2_cache_size": 50 * 2**20, "uuid": "0"}
    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda device: done.append(("set", int(device))),  # a name needs a number
        "synchronize": lambda device=None: done.append(("wait", str(device))),
        "get_device_name": lambda device: f"GPU of {device}",
        "get_device_properties": lambda device: SimpleNamespace(**about),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    return done


def test_a_gpu_is_asked_for_its_name_and_measures_what_it_can(folder, monkeypatch, capsys, gpus):
    monkeypatch.setattr(machine, "processor", lambda: "host")
    asked = []

    def benchmark(rounds, device="cpu"):
        asked.append(device)
        return {"columns": ["n"], "units": {}, "rows": [[1]]}

    for registry in (rounds.BENCHMARKS, rounds.ANYWHERE):
        monkeypatch.setitem(registry, "decode", benchmark)
    run(monkeypatch, "decode")
    run(monkeypatch, "decode", "--device", "cuda:1")
    assert asked == ["cpu", "cuda:1"]
    run(monkeypatch, "decode", "--device", "cuda")
    assert gpus == [("set", 1), ("set", 0)]
    about = filing.provenance(20, run, "cuda:1")
    found = measured.found(folder / measured.folder(about) / "decode.json")["provenance"]
    assert measured.folder(about).startswith("gpu-of-cuda-1-")
    assert stable(found) == stable(about)
    assert (found["device"], found["host"], found["cuda"]) == ("GPU of cuda:1", "host", "12.8")
    assert found["machine"]["l2"] == "50 MiB"
    assert found["machine"]["host"]["name"] == "host"
    assert found["state"]["float32_matmul_precision"] == "highest"
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.3")
    about = filing.provenance(20, run, "cuda:1")
    assert (about["hip"], "cuda" in about) == ("6.3", False)
    measured.check_provenance(about)
    with pytest.raises(SystemExit):
        run(monkeypatch, "cache-append", "--device", "cuda")
    assert "no benchmark 'cache-append' on this device, only" in capsys.readouterr().err


SMALL = {"lengths": (64, 300), "batches": (1,), "cached": (1100,), "width": 128, "window": 64}


def test_benchmarks_of_any_device_make_every_tensor_there(monkeypatch):
    """On torch's device without numbers, where a tensor of the CPU would not fit."""
    for module in (sys.modules[function.__module__] for function in rounds.ANYWHERE.values()):
        monkeypatch.setattr(module, "times", called_once, raising=False)
    monkeypatch.setitem(variants.SIZES, "gpu", variants.SIZES["gpu"]._replace(**SMALL))
    monkeypatch.setattr(comparisons, "GPU_EMBED_DIM", 64)
    monkeypatch.setattr(benchmarks, "GPU_LONGEST", 2048)
    for module in (variants, comparisons):
        monkeypatch.setattr(module, "peak_bytes", lambda call, device: bool(called(call)) + 1)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(peers, "flex_attention", torch.nn.functional.scaled_dot_product_attention)
    monkeypatch.setattr(torch.testing, "assert_close", lambda *args, **options: None)
    with torch.no_grad():
        for name in rounds.ANYWHERE.keys() - ASK_FOR_NUMBERS:
            assert rounds.ANYWHERE[name](6, "meta")["rows"]


ASK_FOR_NUMBERS = {"circuits", "flex", "other-requests", "packing"}
ASK_FOR_NUMBERS |= {"launches", "sdpa-backends"}  # or choose by the device


def called(function):
    outputs = function()
    assert all(x.is_meta for x in ([outputs] if hasattr(outputs, "is_meta") else outputs))


def called_once(functions, *, rounds, device, num_threads=1):
    for function in functions.values():
        called(function)
    return {name: [1.0] * rounds for name in functions}


class Clock:
    """Stands for a GPU: each call takes a time, and between calls something else runs."""

    def __init__(self, monkeypatch):
        self.now, self.captured, clocked = 0.0, [], self
        fakes = {
            "Event": lambda enable_timing: Event(clocked),
            "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
            "current_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
            "stream": lambda stream: contextlib.nullcontext(),
            "CUDAGraph": lambda: SimpleNamespace(replay=None),
            "graph": self.graph,
            "get_sync_debug_mode": lambda: 0,
            "set_sync_debug_mode": lambda mode: None,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(torch, "empty", lambda *args, **options: Spare(self))

    @contextlib.contextmanager
    def graph(self, graph):
        before = self.now
        yield
        took = self.now - before
        self.captured.append(took)
        graph.replay = lambda: self.run(took)

    def run(self, seconds):
        self.now += seconds


class Event:
    def __init__(self, clock):
        self.clock = clock

    def record(self):
        self.at = self.clock.now

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)


class Spare:
    device = "cuda"

    def __init__(self, clock):
        self.clock = clock

    def zero_(self):
        self.clock.run(0.5)  # never counted


def test_a_gpu_is_timed_without_launches_and_with_an_empty_cache(monkeypatch, gpus):
    gpu, modes = Clock(monkeypatch), []

    def waits():
        if modes and modes[-1] == "error":
            raise RuntimeError("called a synchronizing operation")
        gpu.run(0.002)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    clock.of_provenance()
    calls = {("short", 8): lambda: gpu.run(0.001), "waits": waits}
    seconds = clock.times(calls, rounds=7, device="cuda:1")
    assert gpu.captured == [pytest.approx(0.001)]
    assert seconds["short", 8] == pytest.approx([0.001] * 7)
    assert seconds["waits"] == pytest.approx([0.002] * 7)
    assert modes[-1] == 0
    assert clock.of_provenance() == {"launched": ["waits"]}
    assert clock.of_provenance() == {}, "forgotten"


def test_kernels_that_ran_are_noted():
    x = torch.randn(1, 2, 64, 32)
    calls = {
        "fused": lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x),
        "written out": lambda: (x @ x.mT).softmax(-1) @ x,
    }
    clock.of_provenance()
    clock.times(calls, rounds=6, block_seconds=0)
    assert clock.of_provenance() == {"kernels": {"fused": "flash_attention_for_cpu"}}


@pytest.mark.parametrize("factor", [0.85, 0.97, 1.03])
def test_a_wrong_factor_is_found_in_half_precision_and_a_rounding_is_none(factor):
    """With outputs as small as those of a long cache."""
    torch.manual_seed(0)
    exact = 0.019 * torch.randn(4, 32, 1, 64)
    right = exact.bfloat16()
    noisy = (exact * (1 + 2**-8 * torch.randn_like(exact))).bfloat16()
    clock.check_equal({"one": lambda: right, "two": lambda: noisy})
    with pytest.raises(AssertionError, match="not close"):
        clock.check_equal({"one": lambda: right, "two": lambda: factor * noisy})


@pytest.mark.parametrize("heads", [32, 8, 1])
def test_ways_to_decode_pass_the_check_in_half_precision(heads):
    torch.manual_seed(0)
    query = torch.randn(1, 32, 1, 64).bfloat16()
    pair = torch.randn(2, 1, heads, 2048, 64).bfloat16()
    ways = {"ours": kernels.attention, "sdpa": kernels.by_enable_gqa, "two": kernels.by_products}
    clock.check_equal({name: lambda way=way: way(query, *pair) for name, way in ways.items()})


def test_packed_texts_are_equal_in_every_way(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FlexAttention wants to be compiled
        calls = kernels.packed_calls((13, 7, 1), "cpu")
        clock.check_equal(calls)
        short = calls["one by one"]()[:, :, 13:20]
    assert list(calls) == ["padded", "masked", "one by one", "flex"]
    assert short.shape == (1, 8, 7, 64)


def test_backends_take_what_they_take():
    """On a CPU there are two, and torch chooses one of them."""
    made = {"dtype": torch.float32, "device": "cpu"}
    few = dict(list(kernels.asked(made).items())[:2])
    for call in few.values():
        can = {
            name: kernels.takes(kernels.only(backend, call))
            for name, backend in kernels.BACKENDS.items()
        }
        assert can["flash"]
        assert can["math"]
        assert clock.kernels(call) == {"flash_attention_for_cpu"}
        assert clock.kernels(kernels.only(kernels.BACKENDS["math"], call)) == {"attention_math"}


# The interval


@pytest.mark.parametrize("number", [6, 8, 12, 20, 30])
def test_an_interval_holds_the_true_median_as_often_as_it_promises(number):
    """Of times with a long tail, as times are; quartiles of few rounds don't."""
    random = torch.Generator().manual_seed(number)
    drawn = torch.randn(6000, number, generator=random, dtype=torch.float64).mul(2).exp()
    intervals = torch.tensor([rounds.interval(row.tolist()) for row in drawn])
    held = ((intervals[:, 1] <= 1) & (intervals[:, 2] >= 1)).double().mean().item()
    assert 0.94 < held <= 1  # 0.95, and three deviations of 6000 draws
    if number <= 8:
        low, high = torch.quantile(drawn, torch.tensor([0.25, 0.75]).double(), dim=1)
        assert ((low <= 1) & (high >= 1)).double().mean() < 0.9


@pytest.mark.parametrize("number", range(6, 41))
def test_an_interval_is_the_shortest_that_keeps_the_promise(number):
    k = rounds.rank(number)
    fewer = [sum(math.comb(number, i) for i in range(j)) / 2**number for j in (k, k + 1)]
    assert 1 - 2 * fewer[0] >= 0.95 > 1 - 2 * fewer[1]
    ordered = [float(i) for i in range(1, number + 1)]
    assert rounds.interval(ordered[::-1]) == [(number + 1) / 2, k, number + 1 - k]


@pytest.mark.parametrize("number", [1, 5])
def test_few_rounds_have_no_interval(number):
    with pytest.raises(ValueError, match=f"rounds must be at least 6, got {number}"):
        rounds.interval([1.0] * number)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_line_below_a_table_says_what_its_file_has_in_brackets(folder, language):
    old = {"en": "rounds, in brackets the quartiles. ", "zh": "括号内为四分位数。"}
    new = {
        "en": "in brackets 95 % intervals of the median. ",
        "zh": "括号内为中位数的 95% 置信区间。",
    }
    assert old[language] in shown(language)
    assert new[language] not in shown(language)
    file = folder / "amd-epyc" / "layers.json"
    found = said(file)
    found["provenance"] |= {"interval": measured.OF_MEDIAN, "rounds": 6}
    file.write_text(json.dumps(found), encoding="utf-8")
    assert new[language] in shown(language)
    found["provenance"]["rounds"] = 5
    file.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(SourceError, match="rounds must be at least 6, got 5"):
        shown(language)


# A machine, and sizes of its own


def test_machines_of_one_name_share_no_folder():
    one = {"device": "AMD EPYC", "machine": {"model": "17", "cores": 2}}
    folders = {measured.folder(one | {"machine": one["machine"] | {"cores": n}}) for n in (2, 4, 8)}
    assert len(folders) == 3
    assert measured.folder(one | {"state": {"load": 7}}) == measured.folder(one)
    assert measured.folder({"device": "AMD EPYC"}) == "amd-epyc", "an older file"


INTEL = """processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model		: 143
model name	: Intel(R) Xeon(R) Platinum
stepping	: 8
cpu MHz		: 2700.004
flags		: fpu sse2 avx avx2 avx512f avx512_bf16 amx_bf16 hypervisor

processor	: 1
cpu MHz		: 800.0
"""
ARM = """processor	: 0
Features	: fp asimd bf16 sve
CPU implementer	: 0x41
CPU architecture: 8
CPU part	: 0xd4f
"""


def test_a_processor_is_told_by_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(INTEL, encoding="utf-8")
    assert machine.processor() == "Intel(R) Xeon(R) Platinum (family 6 model 143)"
    found = machine.of_processor()
    assert (found["stepping"], found["virtual"]) == ("8", True)
    assert found["simd"] == ["avx", "avx2", "avx512f", "avx512_bf16", "amx_bf16"]
    assert machine.state(torch.device("cpu"))["mhz"] == 2700
    (tmp_path / "cpuinfo").write_text(ARM, encoding="utf-8")
    found = machine.of_processor()
    assert (found["vendor"], found["model"]) == ("0x41", "0xd4f")
    assert found["simd"] == ["asimd", "bf16", "sve"]
    assert "virtual" not in found
    (tmp_path / "cpuinfo").unlink()
    assert machine.processor()
    assert machine.of_processor()["cores"] >= 1


def test_a_device_may_have_sizes_of_its_own(folder):
    """The page names the columns of the first device; the others have other numbers there."""
    columns = ["kind", "forward, n = 8", "forward, n = 16", "training, n = 8"]
    first = said(folder / "amd-epyc" / "layers.json") | {"columns": columns, "units": {}}
    (folder / "amd-epyc" / "layers.json").write_text(
        json.dumps(first | {"rows": [["a", 1, 2, 3]]}), encoding="utf-8"
    )
    longer = ["kind", "forward, n = 64", "training, n = 64", "training, n = 128"]
    about = GPU | {"sizes": "bfloat16, E = 4096"}
    found = {"provenance": about, "columns": longer, "units": {}, "rows": [["a", 4, 5, 6]]}
    second(folder, found)
    tables = shown(headings="kind | forward, $n$ = 8 | 16 | training, $n$ = 8")
    assert "| kind | forward, $n$ = 8 | 16 | training, $n$ = 8 |" in tables
    assert "| kind | forward, $n$ = 64 | training, $n$ = 64 | training, $n$ = 128 |" in tables
    assert "torch 2.13.0, CUDA 12.8, bfloat16, E = 4096, 2026-12-24" in tables


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4096, "", "4,096"),
        ("naive", "", "naive"),
        ([1.519, 1.5, 1.61], "", "1.52 (1.50–1.61)"),
        ([0.0153, 0.015, 0.0161], "", "0.0153 (0.015–0.0161)"),
        ([0.001519, 0.0015, 0.00161], "seconds", "1.52 ms (1.50–1.61)"),
        ([0.0001519, 0.0000951, 0.00161], "seconds", "152 µs (95.1–1,610)"),
        ([2.5, 2.25, 3.0], "seconds", "2.50 s (2.25–3.00)"),
        ([9.11e10, 9.0e10, 9.2e10], "flops_per_second", "91.1 GFLOP/s (90.0–92.0)"),
        ([2.2e10, 2.1e10, 2.36e10], "bytes_per_second", "22.0 GB/s (21.0–23.6)"),
        ([1.53e8, 1.5e8, 1.6e8], "bytes_per_second", "153 MB/s (150–160)"),
        (1536, "bytes", "1.50 KiB"),
        (7 * 2**20, "bytes", "7.00 MiB"),
    ],
)
def test_measurements_are_written_as_people_write_them(value, unit, text):
    assert measured.cell(value, unit) == text
