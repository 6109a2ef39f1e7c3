"""Which CPUs are warned of 8-bit weights."""

import pytest

from pipeline.export.cpu_flags import has_vnni, saturation_warning

_WITH = "processor\t: 0\nflags\t\t: fpu avx2 avx512_vnni\nvmx flags\t: vnmi\n"
_AVX = "processor\t: 1\nflags\t\t: fpu avx2 avx_vnni\n"
_WITHOUT = "processor\t: 0\nflags\t\t: fpu avx2 avx512f\nbugs\t\t: avx512_vnni\n"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (_WITH, True),
        (_WITH + _AVX, True),
        (_WITHOUT, False),
        (_WITH + _WITHOUT, False),
        ("", False),
    ],
)
def test_every_cpu_must_have_vnni(cpuinfo: str, expected: bool) -> None:
    assert has_vnni(cpuinfo) is expected


def test_a_cpu_without_vnni_is_warned_of_8_bit_weights() -> None:
    warning = saturation_warning({"reduce_range": False}, cpuinfo=_WITHOUT, machine="x86_64")

    assert warning is not None
    assert warning.startswith("warning: the INT8 weights have 8 bits and this CPU is not known")


@pytest.mark.parametrize(
    ("int8", "cpuinfo", "machine"),
    [
        (None, _WITHOUT, "x86_64"),
        ({"reduce_range": True}, _WITHOUT, "x86_64"),
        ({"reduce_range": False}, _WITH, "x86_64"),
        ({"reduce_range": False}, "", "aarch64"),
    ],
)
def test_others_are_not_warned(int8: dict[str, bool] | None, cpuinfo: str, machine: str) -> None:
    assert saturation_warning(int8, cpuinfo=cpuinfo, machine=machine) is None
