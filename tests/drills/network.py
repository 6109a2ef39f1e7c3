"""Hosts of their own on this machine: network namespaces on one bridge, each with its address.

They share files and processes with this machine and nothing of its network: what a host listens
on is reached from this machine and the other hosts alone.
"""

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass

SUBNET = "10.77.84"


@dataclass(frozen=True)
class Host:
    """One namespace; its interface is ``eth0``, as on a machine."""

    name: str
    address: str
    cable: str
    """The bridge's end of its cable."""

    def command(self, command):
        """Return the command as it runs on this host."""
        # Not `ip netns exec`: that hides /sys/fs/cgroup, where Ray reads the memory's limit.
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def cut_off(self):
        """Pull the cable: packets are lost, nothing is told to anybody."""
        ip("link", "set", self.cable, "down")

    def join_again(self):
        ip("link", "set", self.cable, "up")


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def why_not_allowed():
    """Return why this machine cannot have such hosts, or None."""
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: iproute2, util-linux)"
    name = f"tl{os.getpid()}-try"
    try:
        ip("netns", "add", name)
    except OSError as error:
        return f"network namespaces are not allowed here: {error}"
    cable = f"tl{os.getpid()}t"
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "del", cable)
    except OSError as error:
        return f"virtual cables are not allowed here: {error}"
    finally:
        ip("netns", "del", name)
    return None


@contextmanager
def network(num_hosts):
    """Yield hosts that reach each other and this machine; take all of it away again."""
    mark = f"tl{os.getpid()}"
    bridge = f"{mark}b"
    hosts = [
        Host(name=f"{mark}-{number}", address=f"{SUBNET}.{10 + number}", cable=f"{mark}c{number}")
        for number in range(num_hosts)
    ]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("address", "add", f"{SUBNET}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for host in hosts:
            _connect(host, bridge)
        yield hosts
    finally:
        for host in hosts:
            # The kernel takes a cable away with its network, but later, and its name till then.
            for end in (("link", "del", host.cable), ("netns", "del", host.name)):
                with suppress(OSError):  # It was not reached.
                    ip(*end)
        with suppress(OSError):
            ip("link", "del", bridge)


def _connect(host, bridge):
    ip("netns", "add", host.name)
    ends = ("type", "veth", "peer", "name", "eth0", "netns", host.name)
    ip("link", "add", host.cable, *ends)
    ip("link", "set", host.cable, "master", bridge)
    ip("link", "set", host.cable, "up")
    inside = ("-n", host.name)
    ip(*inside, "address", "add", f"{host.address}/24", "dev", "eth0")
    ip(*inside, "link", "set", "lo", "up")
    ip(*inside, "link", "set", "eth0", "up")
    # Ray asks the kernel which address leads out to find the node's.
    ip(*inside, "route", "add", "default", "via", f"{SUBNET}.1")
