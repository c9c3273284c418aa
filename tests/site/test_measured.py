"""Measurements: filed under their device, shown by pages and stories, refused with a reason."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import measure
import pytest
import torch
from measuring import filing, rounds, variants
from mhsite import data, measured
from mhsite.page import page_paths, parse, read as read_page, skeleton
from mhsite.source import DOCS, LANGUAGES, ROOT, STORIES, SourceError

FILES = measured.files()
each_file = pytest.mark.parametrize(
    "file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}"
)
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
    shown = {table.removeprefix(kind) for table in tables if table.startswith(kind)}
    assert shown == {file.stem for file in FILES} == set(measure.BENCHMARKS)


@each_file
def test_measurements_say_where_they_come_from(file):
    found = measured.found(file)
    assert found == said(file)
    assert set(found) == {"provenance", "columns", "units", "rows"}
    assert file.parent.name == measured.slug(found["provenance"]["device"])
    assert "dirty" not in found["provenance"]["commit"], "measured with code that is in no commit"


@each_file
def test_measurements_link_to_the_code_that_made_them(file):
    """As it was then; where it lies now, of the benchmarks that there are."""
    about = measured.found(file)["provenance"]
    assert measured.code_url(about).endswith(f"/blob/{about['commit']}/{about['code']}")
    then, now = about["code"], inspect.getsourcefile(rounds.BENCHMARKS[file.stem])
    assert then.rpartition("/")[2] == Path(now).name
    if shutil.which("git"):
        asked = ["git", "show", f"{about['commit']}:{then}"]
        shown = subprocess.run(asked, cwd=ROOT, capture_output=True, encoding="utf-8")
        name = file.stem.replace("-", "_")
        assert shown.returncode or f"\ndef {name}(rounds: int" in shown.stdout


def drawn_files():
    """Stories that draw measurements, each with a file that it reads: by its path or in a list."""
    found = []
    for story in sorted(STORIES.glob("*.pycon")):
        text = story.read_text(encoding="utf-8")
        paths = re.findall(r'"docs/data/measured/([^"]*)"', text)
        for folder in (path for path in paths if "/" not in path):
            names = re.search(r"^>>> names = (.+(?:\n\.\.\. .+)*)$", text, re.M)[1]
            paths += [f"{folder}/{name}.json" for name in re.findall(r'"([\w-]+)"', names)]
        found += [(story, measured.FOLDER / path) for path in paths if path.endswith(".json")]
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
    assert len(drawn_files()) == 9


# A second device


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of measurements, with one benchmark on one device."""
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    monkeypatch.setattr(filing, "FOLDER", tmp_path)
    monkeypatch.setattr(filing.slices, "fingerprint", lambda text, name: "of its code")
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
    return data.table(block, language, "https://site/{}".format)


def test_one_device_is_a_table_and_a_line(folder):
    first, rule, row, empty, origin, mark = shown().splitlines()
    assert (first, row) == ("| $n$ | ours |", "| 8 | 2.00 s (1.00–3.00) |")
    assert (rule, empty, mark) == ("| --- | --: |", "", "{ .mh-measured }")
    assert origin.startswith("Measured on AMD EPYC, threads: 1; Python 3.12.1, torch 2.13.0; ")
    assert "(https://site/data/measured/amd-epyc/layers.json)" in origin


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_second_device_needs_its_file_and_nothing_else(folder, language):
    alone = shown(language)
    second(folder)
    tables = shown(language)
    first, other = tables.split("**NVIDIA H100 80GB HBM3**\n{ .mh-device }\n\n")
    name = "**AMD EPYC**" + measured.FIRST[language]
    assert first.strip() == f"{name}\n{{ .mh-device }}\n\n{alone}"
    lines = other.splitlines()
    assert lines[:3] == [*alone.splitlines()[:2], "| 8 | 500 ms |"]
    assert "data/measured/nvidia-h100-80gb-hbm3/layers.json" in lines[4]
    host = {"en": "HBM3, host Intel(R) Xeon(R), threads", "zh": "HBM3，主机 Intel(R) Xeon(R)，线程"}
    cuda = {"en": "torch 2.13.0, CUDA 12.8; 2026", "zh": "torch 2.13.0，CUDA 12.8；2026"}
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
    assert run(monkeypatch, "layers", "--rounds", "3") == 0
    about = filing.provenance(3, run)
    (file,) = (path for path in folder.rglob("*.json") if said(path)["columns"] == ["n"])
    assert said(file)["provenance"] == about | {"threads": "1, 2"}
    assert measured.found(file)["provenance"]["cores"] >= 1
    assert f"filed under {measured.slug(about['device'])}" in capsys.readouterr().out


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


def test_a_gpu_is_asked_for_its_name_and_measures_what_it_can(folder, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(filing, "processor", lambda: "host")
    asked = []

    def benchmark(rounds, device="cpu"):
        asked.append(device)
        return {"columns": ["n"], "units": {}, "rows": [[1]]}

    for registry in (rounds.BENCHMARKS, rounds.ANYWHERE):
        monkeypatch.setitem(registry, "decode", benchmark)
    run(monkeypatch, "decode")
    run(monkeypatch, "decode", "--device", "cuda:1")
    assert asked == ["cpu", "cuda:1"]
    found = measured.found(folder / "gpu-of-cuda-1" / "decode.json")
    about = {"device": "GPU of cuda:1", "host": "host", "cuda": "12.8"}
    assert found["provenance"] == about | filing.provenance(20, run, "cuda:1")
    with pytest.raises(SystemExit):
        run(monkeypatch, "peers", "--device", "cuda")
    assert "no benchmark 'peers' on this device, only" in capsys.readouterr().err


def test_benchmarks_of_any_device_make_every_tensor_there(monkeypatch):
    """On torch's device without numbers, where a tensor of the CPU would not fit."""
    for module in (sys.modules[function.__module__] for function in rounds.ANYWHERE.values()):
        monkeypatch.setattr(module, "measure_seconds", called_once)
    for name, few in {"LENGTHS": (64, 300), "BATCHES": (1,), "CACHED": (130,)}.items():
        monkeypatch.setattr(variants, name, few)
    monkeypatch.setattr(variants, "peak_bytes", lambda call, device: call() is None)
    monkeypatch.setattr(torch.testing, "assert_close", lambda *args, **options: None)
    with torch.no_grad():
        for name in rounds.ANYWHERE.keys() - {"circuits"}:  # asks for numbers
            assert rounds.ANYWHERE[name](2, "meta")["rows"]


def called_once(functions, *, rounds, num_threads=1):
    for function in functions.values():
        outputs = function()
        assert all(
            tensor.is_meta for tensor in ([outputs] if hasattr(outputs, "is_meta") else outputs)
        )
    return {name: [1.0] * rounds for name in functions}


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
