"""What is noted of a machine: what it is, and the state that it is in."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
FIELDS = {  # of x86, then of ARM
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
}
SIMD = re.compile(
    r"avx2?|fma|f16c|avx\w*(512f|bw|vl|bf16|vnni|fp16)|amx_\w+|asimd\w*|bf16|i8mm|sve2?"
)
VERSIONS = ("numpy", "transformers", "x-transformers", "triton")
ASKED = {  # of nvidia-smi
    "driver": "driver_version",
    "power_limit": "power.limit",
    "clock": "clocks.sm",
    "clock_most": "clocks.max.sm",
    "memory_clock": "clocks.mem",
    "temperature": "temperature.gpu",
}


def checked(name: str) -> torch.device:
    """A device that can be measured, made torch's current one; what can't is told before any work.

    Raises:
        ValueError: torch knows no such device, it isn't there, or nothing here waits for it.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be cpu, cuda or cuda:<number>, got {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        why = "nothing here waits until another has finished"
        raise ValueError(f"device must be cpu, cuda or cuda:<number>, got {name!r}: {why}")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ValueError(f"there is no device {name!r}; torch sees {count} GPUs")
        torch.cuda.set_device(device.index or 0)
    return device


def cpuinfo() -> dict[str, str]:
    """What Linux says of the first core; nothing elsewhere."""
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.is_file() else []
    pairs = (line.partition(":") for line in reversed(lines))  # the first core last
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def processor() -> str:
    """In the maker's words, with family and model: clouds call many processors by one name."""
    said = cpuinfo()
    name = said.get("model name") or _asked("sysctl", "-n", "machdep.cpu.brand_string")
    name = name or platform.processor() or platform.machine()
    if "cpu family" not in said:
        return name
    return f"{name} (family {said['cpu family']} model {said['model']})"


def of_processor() -> dict[str, Any]:
    """What stays the same as long as it is the same machine."""
    said = cpuinfo()
    names = {
        key: next((said[f] for f in fields if f in said), "") for key, fields in FIELDS.items()
    }
    flags = said.get("flags", said.get("Features", "")).split()
    found = {"name": processor(), **names, "simd": [f for f in flags if SIMD.fullmatch(f)]}
    found |= {"caches": _caches(), "cores": os.cpu_count(), "memory": _memory()}
    found |= {"system": f"{platform.system()} {platform.machine()}"}
    if "flags" in said:  # others don't tell
        found["virtual"] = "hypervisor" in flags
    return {key: value for key, value in found.items() if value not in ("", [], None)}


def of_gpu(device: torch.device) -> dict[str, Any]:
    about = torch.cuda.get_device_properties(device)
    return {
        "name": torch.cuda.get_device_name(device),
        "architecture": getattr(about, "gcnArchName", None) or f"{about.major}.{about.minor}",
        "multiprocessors": about.multi_processor_count,
        "memory": f"{about.total_memory / 2**30:.0f} GiB",
        "l2": f"{about.L2_cache_size / 2**20:.0f} MiB",
        "host": of_processor(),
    }


def state(device: torch.device) -> dict[str, Any]:
    """What may be another an hour later, at the start: how busy it is, clocks, torch's settings."""
    found: dict[str, Any] = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }
    if hasattr(os, "getloadavg"):
        found["load"] = round(os.getloadavg()[0], 2)
    if mhz := cpuinfo().get("cpu MHz"):
        found["mhz"] = round(float(mhz))
    if device.type == "cuda":
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        query = f"--query-gpu={','.join(ASKED.values())}"
        said = _asked("nvidia-smi", query, "--format=csv,noheader", f"--id=GPU-{uuid}")
        values = [value.strip() for value in said.split(",")]
        found |= dict(zip(ASKED, values, strict=True)) if len(values) == len(ASKED) else {}
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def versions() -> dict[str, str]:
    """Of packages that some benchmarks run; torch and Python are noted elsewhere."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _caches() -> dict[str, str]:
    """Of the first core: ``{"L1 Data": "32K"}``."""
    found = {}
    for index in sorted(CACHES.glob("index*")):
        level, kind, size = (
            (index / what).read_text("utf-8").strip() for what in ("level", "type", "size")
        )
        found[f"L{level} {kind}"] = size
    return found


def _memory() -> str:
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # Windows
        return ""
    return f"{pages / 2**30:.0f} GiB"


def _asked(command: str, *arguments: str) -> str:
    """What a program says, if there is one and it has something to say."""
    if shutil.which(command) is None or (command == "sysctl" and sys.platform != "darwin"):
        return ""
    done = subprocess.run([command, *arguments], capture_output=True, encoding="utf-8")
    return done.stdout.strip() if not done.returncode else ""
