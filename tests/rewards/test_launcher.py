"""Nothing outside the sandbox is read, written, reached or left behind."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.rewards import launcher as launcher_module
from trinity.rewards.grade import GraderClosedError
from trinity.rewards.launcher import Launcher
from trinity.rewards.sandbox import Limits, Sandbox, SandboxEnded


@pytest.fixture(params=["as it starts here", "with a namespace of users"])
def bubblewrap(request, bubblewrap):
    """Root has two ways to start a sandbox, of which one is all that others have."""
    if request.param == "as it starts here" or os.geteuid() != 0:
        return bubblewrap
    launcher = Launcher("bubblewrap", bubblewrap._limits)
    try:
        launcher._try(drops_root=False)
    except RuntimeError as error:
        pytest.skip(str(error))
    launcher._drops_root = False
    return launcher


KINDS = ["stdin", "unittest"]  # the narrow filter of system calls, and the wide one


def run(launcher, program, kind="stdin"):
    """What the program prints, as an ordinary program or from within a unit test."""
    job = {"kind": kind, "program": [program]}
    if kind == "unittest":
        body = "".join(f"        {line}\n" for line in ["f()"])
        test = f"import unittest\nclass T(unittest.TestCase):\n    def test(self):\n{body}"
        wrapped = "def f():\n" + "".join(f"    {line}\n" for line in program.splitlines())
        job |= {
            "program": [wrapped + "    import sys; sys.stdout.flush()"],
            "test": test,
            "nonce": "n",
            "entry_point": "f",
        }
    with launcher.start(1, proc=kind == "unittest") as sandbox:
        return sandbox.do(job)


@pytest.mark.parametrize("kind", KINDS)
def test_the_environment_holds_nothing_of_ours(bubblewrap, monkeypatch, kind):
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    report = run(bubblewrap, "import os, json\nprint(json.dumps(dict(os.environ)))", kind)
    environment = json.loads(report["output"])
    assert set(environment) - set(launcher_module._ENVIRONMENT) <= {"PWD", "LC_CTYPE"}
    assert "secret" not in report["output"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_ours_is_read(bubblewrap, tmp_path, kind):
    (tmp_path / "secret").write_text("secret")
    places = [
        tmp_path / "secret",
        Path(__file__),
        Path.home() / ".bashrc",
        "/etc/passwd",
        "/etc/shadow",
        "/work",
    ]
    program = "import os\nfor path in {!r}:\n    print(os.path.exists(path))\n"
    program += "print(os.listdir('/tmp'), [n for n in ('home', 'var', 'mnt', 'work', 'run', 'sys', 'boot') if os.path.exists('/' + n)])"
    report = run(bubblewrap, program.format([str(place) for place in places]), kind)
    assert report["output"].split() == ["False"] * len(places) + ["[]", "[]"], report


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outside_is_written(bubblewrap, tmp_path, kind):
    tmp_path.chmod(0o777)
    mark = "/tmp/mark-of-a-test"
    paths = [
        str(tmp_path / "x"),
        mark,
        "/dev/shm/mark-of-a-test",
        "/x",
        "/usr/x",
        "/etc/x",
        "/sandbox/x",
        "/dev/x",
    ]
    paths += [
        str(Path(launcher_module.__file__).parent / "child" / "x"),
        f"{sys.base_prefix}/x",
        f"{sys.prefix}/x",
    ]
    program = f"for path in {paths!r}:\n    try:\n        open(path, 'w').write('x'); print(path)\n    except OSError: pass"
    assert run(bubblewrap, program, kind)["output"].split() == paths[1:3], (
        "its own /tmp and shared memory only"
    )
    assert not any(Path(path).exists() for path in paths)
    assert run(bubblewrap, "import os\nprint(os.listdir('/tmp'))", kind)["output"] == "[]\n", (
        "the next finds nothing"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_network_is_reached(bubblewrap, tmp_path, kind):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0mark-of-a-test")
        local.listen()
        address = server.getsockname()
        program = (
            "import socket\n"
            f"for family, address in [(socket.AF_INET, {address!r}), (socket.AF_UNIX, '\\0mark-of-a-test'), "
            "(socket.AF_INET, ('1.1.1.1', 53))]:\n"
            "    try:\n        socket.socket(family).connect(address); print('reached')\n"
            "    except OSError as error: print(type(error).__name__)"
        )
        output = run(bubblewrap, program, kind)["output"]
        assert len(output.split()) == 3
        assert "reached" not in output
        socket.create_connection(address).close()  # it could be reached


@pytest.mark.parametrize("kind", KINDS)
def test_no_process_of_ours_is_seen_or_signalled(bubblewrap, kind):
    ours = os.getpid()
    program = (
        "import os, signal\n"
        f"for pid in ({ours}, {os.getppid()}):\n"
        "    try:\n        os.kill(pid, 0); print('seen')\n    except OSError as error: print(type(error).__name__)\n"
        "print(len([n for n in os.listdir('/proc') if n.isdigit()]) if os.path.exists('/proc') else 0)\n"
        "print(os.getuid())"
    )
    first, second, processes, user = run(bubblewrap, program, kind)["output"].split()
    assert "seen" not in (first, second)
    assert int(processes) <= 4, "bubblewrap's first process, the runner, the job"
    assert int(user) != 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_runner_is_out_of_reach(bubblewrap, kind):
    program = (
        "import ctypes, os\n"
        "parent = os.getppid()\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.ptrace(16, parent, 0, 0), libc.syscall(438, parent, 0, 0))\n"
        "for name in ('mem', 'environ', 'fd/20', 'maps'):\n"
        "    try:\n        open(f'/proc/{parent}/{name}', 'rb').read(1); print('read')\n    except OSError: pass\n"
        "print(libc.unshare(0x10000000), libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))"
    )
    assert run(bubblewrap, program, kind)["output"].split() == ["-1"] * 4


def test_a_job_holds_no_channel(bubblewrap):
    program = "import os\nfor fd in range(1000):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"
    assert run(bubblewrap, program)["output"].split() == ["0", "1", "2", "3"]


def test_jobs_do_not_disturb_each_other(bubblewrap):
    with bubblewrap.start(3) as sandbox:
        first = {"kind": "stdin", "program": ["import builtins, json\njson.dumps = builtins.print = None"]}
        sandbox.do(first)
        second = {"kind": "stdin", "program": ["import json\nprint(json.dumps([1]))"], "input": ""}
        assert sandbox.do(second)["output"] == "[1]\n"


def test_a_sandbox_that_hangs_is_killed(bubblewrap):
    """The grader does not rely on the runner's own clock."""
    with bubblewrap.start(1) as sandbox:
        os.kill(sandbox._process.pid, signal.SIGSTOP)
        sandbox._stop.cancel()
        sandbox._stop = sandbox._kill_after(0.1)
        with pytest.raises(SandboxEnded):
            sandbox.do({"kind": "stdin", "program": ["while True: pass"]})


@pytest.mark.filterwarnings("ignore:sandbox")
@pytest.mark.parametrize("kind", ["bubblewrap", "rlimits"])
@pytest.mark.parametrize("moment", ["made", "getting ready", "at work"])
def test_stopping_ends_a_sandbox_at_any_moment(bubblewrap, monkeypatch, kind, moment):
    launcher = Launcher(kind, bubblewrap._limits)
    launcher.probe()
    made = []

    class Watched(Sandbox):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)
            if moment == "made":
                launcher.stop()

        def receive(self):
            if moment == "getting ready":
                launcher.stop()
            return super().receive()

    monkeypatch.setattr(launcher_module, "Sandbox", Watched)
    with pytest.raises(GraderClosedError), launcher.start(1) as sandbox:
        assert moment == "at work"
        launcher.stop()
        sandbox.do({"kind": "stdin", "program": ["while True: pass"]})
    with pytest.raises(GraderClosedError), launcher.start(1):
        pass
    assert len(made) == 1, "and none is started any more"
    assert made[0]._process.returncode is not None
    moment = ""
    launcher.go_on()
    with launcher.start(1) as sandbox:
        assert sandbox.do({"kind": "stdin", "program": ["print(5)"]})["output"] == "5\n"


def test_an_interrupt_while_a_sandbox_starts_leaves_none_behind(bubblewrap, monkeypatch):
    made = []

    class Interrupted(Sandbox):
        def receive(self):
            made.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(launcher_module, "Sandbox", Interrupted)
    with pytest.raises(KeyboardInterrupt), bubblewrap.start(1):
        pass
    assert made[0]._process.returncode is not None


@pytest.mark.parametrize("kind", ["bubblewrap", "rlimits"])
def test_a_program_ends_with_us(bubblewrap, kind):
    """Also when we are killed outright."""
    script = (
        "import os, signal, threading, time\n"
        "from trinity.rewards.launcher import Launcher\n"
        "from trinity.rewards.sandbox import Limits\n"
        f"with Launcher({kind!r}, Limits(cpu_seconds=60, wall_seconds=60)).start(1) as sandbox:\n"
        "    sandbox.send({'kind': 'stdin', 'program': ['while True: pass']})\n"
        "    time.sleep(0.3)\n"
        "    print(sandbox._process.pid, flush=True)\n"
        "    children = open(f'/proc/{sandbox._process.pid}/task/{sandbox._process.pid}/children').read().split()\n"
        "    print(*children, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60
    )
    pids = done.stdout.split()
    assert len(pids) == 2, "the sandbox and the process in it"
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ended, _, _ = select.select([os.pidfd_open(int(pid))], [], [], 20)
            assert ended, "an orphan is left"


def test_without_bubblewrap_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"there is no bwrap.*install bubblewrap.*sandbox: rlimits"):
        Launcher("bubblewrap", Limits()).probe()


def test_a_bubblewrap_that_fails_is_quoted(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: no permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match="no permissions to create new namespace"):
        Launcher("bubblewrap", Limits()).probe()


@pytest.mark.filterwarnings("ignore:sandbox")
def test_limits_alone_are_a_choice_that_warns():
    launcher = Launcher("rlimits", Limits(cpu_seconds=1, wall_seconds=2, memory_mb=1024, output_mb=4))
    with pytest.warns(UserWarning, match="read and write every file"):
        launcher.probe()
    assert run(launcher, "print(5)")["output"] == "5\n"
    for attack in (
        "import os\nos.fork()", "import socket\nsocket.socket()", f"import os\nos.kill({os.getpid()}, 0)",
        "import os\nos.kill(os.getppid(), 9)", "x = bytearray(2 * 10**9)", "import os\nos.setsid()",
    ):  # fmt: skip
        assert '"error"' in run(launcher, attack)["result"], attack
    assert (
        run(launcher, "import os\nprint('HOME' in os.environ, 'USER' in os.environ)")["output"]
        == "True False\n"
    )


def test_an_unknown_kind_and_senseless_limits_are_refused():
    with pytest.raises(UserError, match="'docker'; choose bubblewrap or rlimits"):
        Launcher("docker", Limits())
    with pytest.raises(UserError, match="memory_mb is 0"):
        Limits(memory_mb=0)
    with pytest.raises(UserError, match=r"wall_seconds, 1, is below its cpu_seconds, 2"):
        Limits(cpu_seconds=2, wall_seconds=1)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_an_interpreter_below_tmp_is_not_covered_by_the_sandboxes_own() -> None:
    command = launcher_module._bubblewrap(drops_root=False, proc=False)
    own_tmp = next(i for i in range(len(command) - 1) if command[i : i + 2] == ["--tmpfs", "/tmp"])
    packages = next(
        i
        for i in range(len(command) - 1)
        if command[i : i + 2] == ["--ro-bind", sysconfig.get_path("purelib")]
    )
    assert own_tmp < packages
