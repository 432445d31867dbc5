"""The machine that something was measured on: cores of one kind take twice as long as another's."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30


@dataclass(frozen=True)
class ThisMachine:
    """``cpu`` is the processor's name."""

    cores: int
    cpu: str
    memory_gib: float
    kernel: str


def this_machine() -> ThisMachine:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return ThisMachine(
        cores=os.cpu_count() or 1,
        cpu=processor(Path("/proc/cpuinfo").read_text()) or platform.machine(),
        memory_gib=round(memory / GIB, 1),
        kernel=platform.release(),
    )


def processor(cpuinfo: str) -> str:
    """The first core's name without its decoration, or nothing: ARM's have none."""
    names = (
        line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("model name")
    )
    plain = next(names, "").replace("(R)", "").replace("(TM)", "")
    return " ".join(plain.split()).removesuffix(" Processor")
