"""An application in headless Chromium, which has no other address to ask than the server's."""

import shutil
import subprocess
import threading
import time

import uvicorn

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Served:
    """A server of the application, in a thread of this process."""

    def __init__(self, app):
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self._server.servers[0].sockets[0].getsockname()[1]

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()


def render(app, path, folder):
    """Return a page of an application after a person opened it, as Chromium shows it."""
    with Served(app) as port:
        return look(f"http://127.0.0.1:{port}{path}", folder)


def look(url, folder, *, seconds=5, picture=None):
    """Return what Chromium shows of a page after so many seconds of its own time.

    With a path for a picture a PNG is written there in place of that.
    """
    command = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.*",
        f"--user-data-dir={folder / 'profile'}",
        f"--virtual-time-budget={seconds * 1000}",
        "--window-size=1400,900",
        f"--screenshot={picture}" if picture else "--dump-dom",
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
