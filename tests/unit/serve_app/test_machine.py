"""How many CPUs are ours."""

import os

import pytest

from serve_app.machine import read_cpu_name, read_machine, usable_cpus


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty root folder of a machine whose affinity allows 8 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_quota_the_affinity_counts(root):
    assert usable_cpus(root) == 8


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("350000 100000", 3),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("", 8),
        ("rubbish", 8),
        ("100000 0", 8),
    ],
)
def test_a_quota_of_version_2_is_heeded_in_whole_cpus(root, limit, cpus):
    write(root / "proc/self/cgroup", "0::/pod/box\n")
    write(root / "sys/fs/cgroup/pod/box/cpu.max", limit)

    assert usable_cpus(root) == cpus


def test_the_tightest_group_above_counts(root):
    write(root / "proc/self/cgroup", "0::/pod/box\n")
    write(root / "sys/fs/cgroup/pod/box/cpu.max", "600000 100000\n")
    write(root / "sys/fs/cgroup/pod/cpu.max", "200000 100000\n")

    assert usable_cpus(root) == 2


@pytest.mark.parametrize(("quota", "cpus"), [("300000", 3), ("-1", 8), ("0", 8)])
def test_a_quota_of_version_1_is_heeded(root, quota, cpus):
    write(root / "proc/self/cgroup", "5:memory:/box\n2:cpu,cpuacct:/box\n")
    write(root / "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", f"{quota}\n")
    write(root / "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")

    assert usable_cpus(root) == cpus


def test_the_cpu_is_named_or_else_its_architecture(root):
    without = read_cpu_name(root)
    write(root / "proc/cpuinfo", "processor: 0\nmodel name\t: Acme 9000\nmodel name: other\n")

    assert read_cpu_name(root) == "Acme 9000"
    assert without


def test_the_present_machine_can_be_read():
    machine = read_machine()

    assert 1 <= machine.usable_cpus <= (os.cpu_count() or 1)
    assert machine.onnxruntime[0].isdigit()
