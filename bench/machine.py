"""What a figure was measured on: it stands beside every result."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


def description() -> dict[str, str | int | float]:
    """Processor, cores, memory, kernel, versions, and how busy the machine was when this was asked."""
    return {
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_first_value("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java(),
        "pyspark": version("pyspark"),
        "redis": _redis(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _first_value(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return "unknown"


def _java() -> str:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return told.splitlines()[0] if told else "none"


def _redis() -> str:
    told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    return next((word[2:] for word in told.split() if word.startswith("v=")), "none")
