import torch

from pipeline.train.device_memory import available_bytes, read_memory

CPU = torch.device("cpu")
MEMINFO = "MemTotal:       9000 kB\nMemFree:         100 kB\nMemAvailable:   8000 kB\n"


def build_root(folder, own_groups, files):
    """Lay out proc and sys as the kernel does."""
    shown = {"proc/meminfo": MEMINFO, "proc/self/cgroup": own_groups, **files}
    for name, text in shown.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def group_files(folder, limit, use, stat, *, names=("memory.max", "memory.current")):
    return {
        f"sys/fs/cgroup/{folder}{names[0]}": f"{limit}\n",
        f"sys/fs/cgroup/{folder}{names[1]}": f"{use}\n",
        f"sys/fs/cgroup/{folder}memory.stat": stat,
    }


def test_machine_without_limits_has_what_is_available(tmp_path):
    files = group_files("", "max", 5, "inactive_file 1\n")

    assert available_bytes(CPU, root=build_root(tmp_path, "0::/\n", files)) == 8000 * 1024


def test_limit_of_a_group_counts_less_what_is_in_use_but_the_page_cache(tmp_path):
    files = group_files("", 1_000_000, 700_000, "anon 600000\ninactive_file 50000\n")

    assert available_bytes(CPU, root=build_root(tmp_path, "0::/\n", files)) == 350_000


def test_limit_of_an_outer_group_counts_too(tmp_path):
    files = {
        **group_files("user/job/", "max", 10, "inactive_file 0\n"),
        **group_files("user/", 500_000, 100_000, "inactive_file 0\n"),
    }

    assert available_bytes(CPU, root=build_root(tmp_path, "0::/user/job\n", files)) == 400_000


def test_first_version_of_groups_in_a_container_that_is_told_the_path_outside(tmp_path):
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    stat = "inactive_file 1\ntotal_inactive_file 20000\n"
    files = group_files("memory/", 900_000, 300_000, stat, names=names)
    groups = "5:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n0::/docker/1f\n"

    assert available_bytes(CPU, root=build_root(tmp_path, groups, files)) == 620_000


def test_group_over_its_limit_has_nothing_left(tmp_path):
    files = group_files("", 100, 300, "inactive_file 0\n")

    assert available_bytes(CPU, root=build_root(tmp_path, "0::/\n", files)) == 0


def test_this_machine_and_process_can_be_read():
    reading = read_memory(CPU)

    assert available_bytes(CPU) > 0
    assert reading.allocated_bytes > 0
    assert reading.reserved_bytes is None
