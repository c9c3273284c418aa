"""Run the stories and labs whose results are missing or stale: see `mhsite.running`.

`python scripts/stories.py` runs what has to run; with `--rewrite masks` it puts what that story
prints now into its file; with `--arithmetic` it runs every story as other processors compute.
"""

from __future__ import annotations

import argparse
<<<<<<< 06fc9d11efe7d1342352ec9931a21060d500096a
import functools
import hashlib
import json
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
=======
>>>>>>> 27baa854558ef1e632a582cd5ec0e12389ede39b
import sys

<<<<<<< 06fc9d11efe7d1342352ec9931a21060d500096a
import models
from mhsite.source import LABS, ROOT, STORIES, SourceError, exported
from tqdm import tqdm

CACHE = ROOT / ".cache" / "stories"
RUNNER = [f"mhsite/{name}.py" for name in ("source", "runner", "grids", "svg")] + ["stories.py"]
PRELOAD = ["torch", "matplotlib.pyplot", "mhsite.runner"]
# mhattn.core.masks, or what an import names; an import of mhattn under another name is of all.
IMPORT = re.compile(r"\bfrom mhattn((?:\.\w+)*) import (?:\(([^)]*)\)|(.*))|\bmhattn((?:\.\w+)+)")
DATA = re.compile(r"\bdocs/data/[\w./-]*\w")
IMPORT_OF_ALL = re.compile(r"\bimport mhattn as\b|\bfrom mhattn import \*")
# Elsewhere a process cannot be forked, or not once it has loaded torch.
START = "forkserver" if sys.platform == "linux" else "spawn"

# What makes one processor add and round as another would, under each kind's name.
ARITHMETIC = {
    "native": {},
    "two threads": {
        "MHATTN_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",  # or each thread that waits takes a core
    },
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "SSE": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}
SETTINGS = sorted({name for settings in ARITHMETIC.values() for name in settings})


def all_stories() -> list[Path]:
    return sorted(STORIES.glob("*.pycon")) + sorted(LABS.glob("*.py"))


def choose_device(name: str) -> str:
    if name != "auto":
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def dependencies() -> dict[str, str]:
    """What results depend on besides their story: the package's modules, and "" for all the rest.

    Nothing depends on ``mhattn/__init__.py``, which only knows in which module each name is.
    """
    digest = hashlib.sha256()
    runner = (ROOT / "scripts" / name for name in RUNNER)
    for path in [*sorted(ROOT.glob("mhattn/**/*.toml")), *runner]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    versions = [f"{name} {version(name)}" for name in ("torch", "matplotlib", "numpy")]
    arithmetic = [f"{name}={os.environ.get(name)}" for name in SETTINGS]
    digest.update("\n".join([platform.python_version(), *versions, *arithmetic]).encode())
    modules = [path for path in ROOT.glob("mhattn/**/*.py") if path.stem != "__init__"]
    texts = {
        ".".join(path.relative_to(ROOT / "mhattn").with_suffix("").parts): path.read_text(
            encoding="utf-8"
        )
        for path in modules
    }
    return {**texts, "": digest.hexdigest()}


@functools.lru_cache(maxsize=256)
def imported(text: str) -> set[str]:
    """What a text, or an example or a string in it, takes from the package: ``core.masks``."""
    if IMPORT_OF_ALL.search(text):
        return {""}
    found = set()
    for door, several, one, dotted in IMPORT.findall(text):
        names = re.findall(r"\w+", several + one) if several or one else []
        found |= {f"{door}.{name}".strip(".") for name in names} | {dotted.strip(".")}
    return found - {""}


def resolved(dotted: str, package: dict[str, str]) -> list[str]:
    """The modules that a name of the package stands for: its own, or of a package all."""
    parts = dotted.split(".")
    for stop in range(len(parts), 0, -1):
        if (module := ".".join(parts[:stop])) in package:
            return [module]
    for stop in range(len(parts)):
        door = ROOT.joinpath("mhattn", *parts[:stop], "__init__.py")
        for module, names in exported(door).items() if door.is_file() else ():
            if parts[stop] in names:
                return [".".join([*parts[:stop], module])]
    return [module for module in package if f"{module}.".startswith(f"{dotted}." if dotted else "")]


def reached(text: str, package: dict[str, str]) -> list[str]:
    """The package's modules that code uses, directly or through one another."""
    found, left = set(), [text]
    while left:
        named = {m for name in imported(left.pop()) for m in resolved(name, package) if m}
        new = named - found
        found |= new
        left += [package[name] for name in new]
    return sorted(found)


def data_of(text: str) -> list[Path]:
    """The files of docs/data that a story names, and those in folders that it names."""
    named = (ROOT / name for name in sorted(set(DATA.findall(text))))
    found = [[path] if path.is_file() else sorted(path.glob("*")) for path in named]
    return [path for paths in found for path in paths if path.is_file()]


def result_folder(story: Path, device: str, package: dict[str, str]) -> Path:
    """Where a story's results are, or will be: ``package`` is what `dependencies` gave."""
    text = story.read_text(encoding="utf-8")
    parts = [text, device, package[""], *(package[name] for name in reached(text, package))]
    parts += [file_hash(path) for path in data_of(text)]
    if needed := models.needed_by(story):
        parts += [model.member_sha256 for model in needed]
        parts += [f"{name} {version(name)}" for name in models.READERS]
    digest = hashlib.sha256(b"\0".join(part.encode() for part in parts))
    return CACHE / story.stem / digest.hexdigest()[:32]


def is_whole(folder: Path) -> bool:
    """Does the folder hold just the files, byte for byte, that its run wrote?"""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return manifest == file_hashes(folder)
    except (OSError, ValueError):
        return False


def file_hashes(folder: Path) -> dict[str, str]:
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: file_hash(path)
        for name, path in files.items()
        if path.is_file() and name != "manifest.json"
    }


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(folder: Path) -> list[str]:
    """Where a story, in the run that is filed here, printed something else than its file says."""
    return json.loads((folder / "differences.json").read_text(encoding="utf-8"))


def is_done(folder: Path, lenient: bool) -> bool:
    """Is it filed, and as its file says? A lenient reader takes it with differences as well."""
    if not is_whole(folder):
        return False
    return not differences(folder) or (lenient and not can_run_now(folder))


def lacked(folder: Path) -> list[str]:
    """The files of trained models without which a story was filed as if it had run."""
    path = folder / "lacked.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def can_run_now(folder: Path) -> bool:
    """Has been fetched since what it lacked?"""
    return bool(lacked(folder)) and all(Path(path).is_file() for path in lacked(folder))


def lacking(stories: list[Path]) -> dict[Path, str]:
    """Fetch the models that stories need; for each story that must go without, why."""
    found = {}
    for story in stories:
        try:
            for model in models.needed_by(story):
                models.fetch(model)
        except SourceError as error:
            found[story] = f"{story}: cannot run: {error.message}"
    return found


def results(device: str = "cpu", *, lenient: bool = False) -> dict[str, Path | None]:
    """For every story, the folder with its results, or None where it has to be run."""
    package = dependencies()
    folders = {story.stem: result_folder(story, device, package) for story in all_stories()}
    return {name: folder if is_done(folder, lenient) else None for name, folder in folders.items()}


def _run_one(story: Path, folder: Path, device: str, lenient: bool, why: str, answer) -> None:
    """In a process of its own: run a story beside ``folder``, then rename it into place.

    If there is a ``why`` it can't run: it's filed as if it had printed what its file says.
    """
    from mhsite.runner import run, run_nothing

    draft = None
    try:
        before = set(sys.modules)
        draft = Path(tempfile.mkdtemp(prefix=f".draft-{os.getpid()}-", dir=folder.parent))
        different = run_nothing(story, draft, why) if why else run(story, draft, device)
        refuse_unseen(story, set(sys.modules) - before)
        manifest = json.dumps(file_hashes(draft), indent=1)
        (draft / "manifest.json").write_text(manifest, encoding="utf-8")
        put_results(draft, folder)
        answer.send(None if lenient else "\n".join(different))
    except SourceError as error:
        answer.send(str(error))
    except OSError as error:
        answer.send(f"{story}: the results cannot be written: {error}")
    finally:
        if draft:
            shutil.rmtree(draft, ignore_errors=True)


def refuse_unseen(story: Path, loaded: set[str]) -> None:
    """A story that loads a module of the package without a plain import would never be stale."""
    modules = {name.removeprefix("mhattn.") for name in loaded if name.startswith("mhattn.")}
    if unseen := modules - set(reached(story.read_text(encoding="utf-8"), dependencies())):
        raise SourceError(f"imports mhattn.{min(unseen)} where no import names it", story)


def put_results(draft: Path, folder: Path) -> None:
    """Rename the draft into place, unless another build was faster."""
    if is_done(folder, lenient=False):
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        draft.rename(folder)
    except OSError:
        if not is_whole(folder):
            raise


def run_stories(
    chosen: list[Path],
    device: str,
    *,
    force: bool = False,
    lenient: bool = False,
    jobs: int | None = None,
    start: str = START,
) -> list[str]:
    """Run what is missing or stale, or with ``force`` all; the errors, one text a failed story.

    A story that prints something else than its file says, or lacks a trained model, is an error
    unless ``lenient``: then it is filed with its `differences`, and who is not lenient runs it
    again.
    """
    package, errors, running = dependencies(), [], {}
    folders = {story: result_folder(story, device, package) for story in chosen}
    todo = [story for story, folder in folders.items() if force or not is_done(folder, lenient)]
    without = lacking(todo)
    if not lenient:
        errors += without.values()
        todo = [story for story in todo if story not in without]
    make_cache(folders[story] for story in todo)
    context = multiprocessing.get_context(start)
    if start == "forkserver":
        context.set_forkserver_preload(PRELOAD)
    with tqdm(total=len(todo), desc="stories", disable=None) as bar:
        while todo or running:
            while todo and len(running) < (jobs or os.cpu_count() or 1):
                story = todo.pop(0)
                answer, theirs = context.Pipe(duplex=False)
                if force:
                    shutil.rmtree(folders[story], ignore_errors=True)
                why = without.get(story, "")
                process = context.Process(
                    target=_run_one, args=(story, folders[story], device, lenient, why, theirs)
                )
                process.start()
                theirs.close()
                running[answer] = story, process
            for answer in wait(list(running)):
                story, process = running.pop(answer)
                errors += _error(answer, story, process)
                bar.update()
    return errors


def _error(answer, story: Path, process) -> list[str]:
    try:
        error = answer.recv()
    except EOFError:
        process.join()
        error = f"{story}: its process ended with exit code {process.exitcode}, without a result"
        for draft in CACHE.glob(f"{story.stem}/.draft-{process.pid}-*"):
            shutil.rmtree(draft, ignore_errors=True)
    process.join()
    return [error] if error else []


def make_cache(folders) -> None:
    """Make the folders' parents, and clear away what killed builds and old versions left there."""
    try:
        for folder in folders:
            folder.parent.mkdir(parents=True, exist_ok=True)
            old = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in old[:-32]:
                shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        raise SourceError(f"the results cannot be written: {error}", CACHE) from None


def run_arithmetic(arguments: list[str]) -> list[str]:
    """Run the stories under each kind of arithmetic, which torch reads when it is imported."""
    failed = []
    others = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    for kind, settings in ARITHMETIC.items():
        print(f"{kind}:", *(f"{name}={value}" for name, value in settings.items()), flush=True)
        command = [sys.executable, __file__, *arguments]
        failed += [kind] * bool(subprocess.run(command, env=others | settings).returncode)
    return [f"not the same under every arithmetic: see {', '.join(failed)}"] * bool(failed)


def choose(names: list[str]) -> list[Path]:
    """The stories and labs of these names, or all."""
    known = {story.stem: story for story in all_stories()}
    for name in names:
        if name not in known:
            raise SourceError(f"there is no story {STORIES / name}.pycon")
    return [known[name] for name in names or known]
=======
from mhsite import keys, running
from mhsite.source import SourceError
>>>>>>> 27baa854558ef1e632a582cd5ec0e12389ede39b


def main() -> int:
    sys.stdout.reconfigure(encoding="utf-8")  # whatever this machine's is: stories print symbols
    options = _parser().parse_args()
    try:
        errors = _errors(options)
    except SourceError as error:
        errors = [str(error)]
    except KeyboardInterrupt:
        errors = ["interrupted"]
    for error in errors:
        print(error)
    return 1 if errors else 0


def _errors(options: argparse.Namespace) -> list[str]:
    if options.rewrite:
        running.rewrite(options.rewrite)
        return []
    chosen = running.choose(options.names)
    if options.arithmetic:
        arguments = [arg for arg in sys.argv[1:] if arg != "--arithmetic"]
        return running.run_arithmetic([sys.executable, __file__, *arguments])
    return running.run_stories(
        chosen,
        keys.choose_device(options.device),
        force=options.force,
        lenient=options.lenient,
        jobs=options.jobs,
        start=options.start,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="of stories and labs; default: all")
    parser.add_argument(
        "--arithmetic", action="store_true", help="run them as several processors would compute"
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="cpu")
    parser.add_argument("--force", action="store_true", help="run all, stale or not")
    parser.add_argument("--jobs", type=int, help="how many at once (default: one a core)")
    parser.add_argument(
        "--lenient", action="store_true", help="file a story that prints something else as well"
    )
    parser.add_argument("--rewrite", metavar="STORY", help="rewrite a story's expected outputs")
    parser.add_argument(
        "--start", choices=["forkserver", "spawn"], default=running.START, help="of a process"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
