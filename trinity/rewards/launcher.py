"""How a sandbox starts: through bubblewrap, or with limits alone where the user accepts that."""

import compileall
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from trinity.errors import UserError
from trinity.rewards import child
from trinity.rewards.grade import GraderClosedError
from trinity.rewards.sandbox import Limits, Sandbox, SandboxEnded

SandboxKind = Literal["bubblewrap", "rlimits"]

_CHILD = Path(child.__file__).parent
_PACKAGES = _CHILD.parents[2]
_INSIDE = "/sandbox"
_TMP = "/tmp"  # noqa: S108 (the sandbox's own)
_TMP_BYTES = 64 << 20
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "fonts", "mime.types")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": _TMP,
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the order of a set is no matter of luck
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
_BOOT = (
    "import sys, json; sys.path[:0] = [{packages!r}]; sys.path += {site!r}; "
    "from trinity.rewards.child.runner import main; del sys.path[0]; main(json.loads(sys.argv[1]))"
)
_PROBE = {"kind": "stdin", "program": ["import numpy\nprint(input())"], "input": "probe"}


class Launcher:
    """Starts sandboxes.

    Args:
        kind: "bubblewrap", or "rlimits" for limits and a filter of system calls alone: programs then cannot
            open sockets or start processes, but read and write the files of whoever runs this.
        limits: of each job.
    """

    def __init__(self, kind: SandboxKind, limits: Limits) -> None:
        if kind not in ("bubblewrap", "rlimits"):
            raise UserError(f"There is no sandbox {kind!r}; choose bubblewrap or rlimits.")
        self._kind = kind
        self._limits = limits
        self._drops_root: bool | None = None
        self._lock = threading.Lock()
        self._running: set[Sandbox] = set()
        self._stopped = False

    def probe(self) -> None:
        """Find out, once, how a sandbox starts on this machine.

        Raises UserError if none does, GraderClosedError if stopped meanwhile.
        """
        with self._lock:
            if self._drops_root is not None:
                return
            if self._kind == "rlimits":
                warnings.warn(
                    "sandbox: rlimits lets programs of LLMs read and write every file that this user may "
                    "read and write; bubblewrap does not.",
                    stacklevel=3,
                )
            compileall.compile_dir(_CHILD, quiet=2)  # the sandbox cannot keep what it compiles
            failures = []
            # A root that may do all of it becomes another user; else bubblewrap makes a namespace of users.
            for drops_root in [True, False] if os.geteuid() == 0 else [False]:
                try:
                    self._try(drops_root)
                except (OSError, RuntimeError, SandboxEnded) as error:
                    failures.append(str(error))
                else:
                    self._drops_root = drops_root
                    return
        raise UserError(
            f"Programs cannot be graded, since the sandbox does not start here ({'; '.join(failures)}): "
            "install bubblewrap 0.8 or newer (apt-get install bubblewrap), and allow it to create namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, or "
            "a container's capability SYS_ADMIN), or choose `sandbox: rlimits`, which lets programs of LLMs "
            "read and write this user's files."
        )

    def _try(self, drops_root: bool) -> None:
        with self._start(1, drops_root=drops_root, proc=False) as sandbox:
            report = sandbox.do(_PROBE)
        if report.get("output") != "probe\n":
            raise RuntimeError(f"a tiny program failed in it: {report.get('result')} {report.get('ending')}")

    @contextmanager
    def start(self, jobs: int, *, proc: bool = False) -> Iterator[Sandbox]:
        """A ready sandbox for one program and this many jobs; `proc`: with a /proc (of its own).

        Raises GraderClosedError, also out of the `with` block, where `stop` ends it.
        """
        self.probe()
        assert self._drops_root is not None
        with self._start(jobs, drops_root=self._drops_root, proc=proc) as sandbox:
            yield sandbox

    def stop(self) -> None:
        """End all sandboxes, also those that are just starting. None starts until `go_on`."""
        self._stopped = True  # first: a sandbox that this loop does not see yet looks at it
        with ExitStack() as stack:
            for sandbox in 2 * tuple(self._running):  # once more, where an interrupt ends the first time
                stack.callback(sandbox.kill)

    def check_not_stopped(self) -> None:
        """Raises GraderClosedError between `stop` and `go_on`."""
        if self._stopped:
            raise GraderClosedError

    def go_on(self) -> None:
        """Sandboxes may start again."""
        self._stopped = False

    @contextmanager
    def _start(self, jobs: int, *, drops_root: bool, proc: bool) -> Iterator[Sandbox]:
        self.check_not_stopped()
        try:
            with self._prepared(jobs, drops_root, proc) as sandbox:
                self._running.add(sandbox)
                try:
                    if self._stopped:
                        sandbox.kill()
                    with sandbox:
                        yield sandbox
                finally:
                    self._running.discard(sandbox)
        except (RuntimeError, SandboxEnded) as error:
            if self._stopped:  # then that is the end of it, and no fault of the program or the machine
                raise GraderClosedError from error
            raise

    @contextmanager
    def _prepared(self, jobs: int, drops_root: bool, proc: bool) -> Iterator[Sandbox]:
        """A sandbox that may not be ready yet, and its folder."""
        told = {
            "cpu_seconds": self._limits.cpu_seconds,
            "wall_seconds": self._limits.wall_seconds,
            "memory_bytes": self._limits.memory_mb << 20,
            "file_bytes": self._limits.output_mb << 20,
            "drop_root": drops_root and self._kind == "bubblewrap",
        }
        if self._kind == "rlimits":
            with tempfile.TemporaryDirectory(prefix="trinity-", ignore_cleanup_errors=True) as folder:
                command = [*_python(str(_PACKAGES), _site()), json.dumps(told)]
                environment = _ENVIRONMENT | {"HOME": folder, "TMPDIR": folder}
                yield Sandbox(command, environment, folder, self._limits, jobs)
        else:
            command = [*_bubblewrap(drops_root, proc), "--", *_python(_INSIDE, _site_inside())]
            command.append(json.dumps(told))
            yield Sandbox(command, _ENVIRONMENT, "/", self._limits, jobs)


def _site() -> list[str]:
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def _site_inside() -> list[str]:
    """Where the sandbox has the installed packages: wherever they lie, even below /tmp, its own is empty."""
    return [f"{_INSIDE}/site/{number}" for number, _ in enumerate(_site())]


def _python(packages: str, site: list[str]) -> list[str]:
    boot = _BOOT.format(packages=packages, site=site)
    # No site module: it would read .pth files, and takes longer than all the rest.
    return [os.path.realpath(sys.executable), "-S", "-s", "-P", "-B", "-X", "utf8", "-c", boot]


def _bubblewrap(drops_root: bool, proc: bool) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise OSError("there is no bwrap")
    command = [program, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "sandbox"]
    if drops_root:
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    for path in _SYSTEM:
        if Path(path).is_symlink():
            command += ["--symlink", str(Path(path).readlink()), path]
        else:
            command += ["--ro-bind-try", path, path]
    command += ["--dir", "/etc"]
    for name in _SETTINGS:
        command += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    # Before the interpreter, which may itself lie below it (the packages of a virtual environment don't).
    command += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", _TMP]
    for path in sorted({sys.base_prefix, sysconfig.get_path("stdlib")}):
        for parent in reversed(Path(path).parents):  # bubblewrap would close those that it makes itself
            if parent != Path(_TMP):
                command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", path, path]
    for path, inside in zip(_site(), _site_inside(), strict=True):
        command += ["--ro-bind", path, inside]
    command += ["--ro-bind", str(_CHILD), f"{_INSIDE}/trinity/rewards/child", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    if proc:
        command += ["--proc", "/proc"]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", _TMP]
