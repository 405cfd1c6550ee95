"""A pytest plugin for `--nbval`: kernels that begin with torch imported already.

Each kernel takes two to three seconds of CPU time for imports. Here one process a worker imports what all lessons
do, and each notebook gets a fork of it: a fresh kernel, in which nothing has run. A plain `--nbval` run
starts its kernels as JupyterLab does and does not need this.
"""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PRELOADED = ("torch", "transformers", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "ipywidgets")

# What stands for the kernel in the eyes of Jupyter: it asks for a fork and lives as long as that does, and the fork
# as long as it. `-S -E`: it starts in a few milliseconds.
STAND_IN = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    wanted = {"connection": sys.argv[2], "cwd": os.getcwd(), "environ": dict(os.environ)}
    server.sendall(json.dumps(wanted).encode() + b"\\n")
    server.recv(1)
"""


def pytest_configure(config):
    """Let nbval start its kernels here: in each worker, not in the process that only hands out the tests."""
    if os.name == "posix" and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Forks())


class Forks:
    """The process that forks, from the first notebook to the last."""

    def pytest_sessionstart(self):
        from nbval.kernel import NbvalKernelspecManager

        self.folder = tempfile.TemporaryDirectory()
        address = str(Path(self.folder.name) / "forks")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.notebooks.kernels", str(server.fileno())],
                pass_fds=[server.fileno()],
            )
        self.spec, here = NbvalKernelspecManager.get_kernel_spec, self

        def get_kernel_spec(manager, kernel_name):
            spec = here.spec(manager, kernel_name)
            spec.argv = [sys.executable, "-S", "-E", "-c", STAND_IN, address, "{connection_file}"]
            return spec

        NbvalKernelspecManager.get_kernel_spec = get_kernel_spec

    def pytest_sessionfinish(self):
        from nbval.kernel import NbvalKernelspecManager

        NbvalKernelspecManager.get_kernel_spec = self.spec
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def serve(descriptor: int) -> None:
    """Import what the lessons do, then fork a kernel for each caller."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no kernel that ended stays as a zombie
    with socket.socket(fileno=descriptor) as server:
        for name in (*PRELOADED, "ipykernel.kernelapp"):
            importlib.import_module(name)
        while True:
            caller, _ = server.accept()
            with caller:
                if os.fork() == 0:
                    server.close()
                    become_kernel(caller)


def become_kernel(caller: socket.socket) -> None:
    """Turn this fork into the kernel that the caller asked for, and end with it."""
    wanted = json.loads(caller.makefile().readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # As with nbval's own kernels, what this one says of itself is not shown.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["environ"])
    threading.Thread(target=lambda: (caller.recv(1), os._exit(0)), daemon=True).start()
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=["-f", wanted["connection"]])
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
