"""The machine that is measured on: its processor's name, however it is decorated."""

import pytest

from millrace.common.machine import processor, this_machine


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
        ("AMD EPYC", "AMD EPYC"),
        ("Intel(R) Core(TM) i7-1185G7 @ 3.00GHz", "Intel Core i7-1185G7 @ 3.00GHz"),
        ("AMD Ryzen 9 5950X 16-Core Processor", "AMD Ryzen 9 5950X 16-Core"),
    ],
)
def test_the_first_cores_name(said: str, name: str) -> None:
    core = f"processor\t: 0\nmodel name\t: {said}\nflags\t\t: fpu\n"
    assert processor(core + core.replace(said, "another")) == name


def test_arm_has_none() -> None:
    assert processor("processor\t: 0\nCPU implementer\t: 0x41\n") == ""


def test_this_one_has_all() -> None:
    machine = this_machine()
    assert machine.cores > 0
    assert machine.memory_gib > 0
    assert machine.cpu
    assert machine.kernel
