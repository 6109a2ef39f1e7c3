"""Debian's redis-server, in which a Ray head keeps what the next one has to know."""

import secrets
import shutil
import subprocess
from contextlib import contextmanager

from nodes import free_port, wait_for


def why_no_redis():
    """Return why there is none, or None."""
    return None if shutil.which("redis-server") else "redis-server is not installed (Debian's)"


@contextmanager
def redis(host, folder):
    """Yield its address and password; nothing of it is on disk but its log."""
    port, password = free_port(), secrets.token_hex(16)
    settings = f"bind {host}\nport {port}\nrequirepass {password}\nsave ''\ndir {folder}\n"
    log = folder / "redis.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["redis-server", "-"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.stdin.write(settings.encode())
        process.stdin.close()
        wait_for(lambda: b"Ready to accept" in log.read_bytes(), within_s=20, why=log.read_text)
        yield f"{host}:{port}", password
    finally:
        process.kill()
        process.wait()
