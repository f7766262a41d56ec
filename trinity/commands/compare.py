"""`trinity-compare`: finished runs, or configs x seeds that it runs, ranked with honest statistics."""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from trinity.configs import Config, expand, find_config
from trinity.errors import UserError
from trinity.options import check_options

_TABLE_WIDTH = 140
_FIT = "from trinity.commands.fit import fit; fit()"


def main(argv: Sequence[str] | None = None) -> None:
    """`trinity-compare`."""
    parser = _parser()
    own, fit_options = _parted(sys.argv[1:] if argv is None else list(argv))
    options = parser.parse_args(own)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    try:
        places = [Path(run) for run in options.runs]
        if options.config:
            places += _run_all(options, fit_options, console)
        elif fit_options:
            raise UserError(
                f"Options after -- go to trinity-fit ({fit_options[0]} ...), but no --config is run."
            )
        if not places:
            raise UserError("Nothing to compare: give run folders, or configs to run with --config.")
        _compare(places, options, console)
    except UserError as error:
        print(f"trinity-compare: {error}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trinity-compare",
        description="Compare methods on the same held-out tasks: J curves, accuracies with intervals,\n"
        "and which differences are real.",
        epilog="Options after -- are handed to every trinity-fit.\n\n"
        "  trinity-compare logs/quickstart logs/quickstart_random\n"
        "  trinity-compare --config quickstart --config quickstart_random --seeds 0 1 -- --data.minibatch 8",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", help="run folders, or folders that hold runs")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="[LABEL=]NAME[+NAME...]",
        help="run this config, by name or file, or stack of configs, with every seed first; may be repeated",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the configs (0 1 2)")
    parser.add_argument("--root", type=Path, default=Path("logs/compare"), help="where these runs go")
    parser.add_argument("--jobs", type=int, default=1, help="how many of these runs at a time")
    parser.add_argument("--output", type=Path, help="folder of comparison.md and the figures (--root)")
    parser.add_argument("--correction", choices=("holm", "bonferroni"), default="holm")
    parser.add_argument("--level", type=float, default=0.05, help="of significance, over all pairs (0.05)")
    return parser


def _parted(argv: list[str]) -> tuple[list[str], list[str]]:
    """What is ours, and what follows a `--`."""
    if "--" not in argv:
        return argv, []
    place = argv.index("--")
    return argv[:place], argv[place + 1 :]


@dataclass(frozen=True)
class _Job:
    """One training run to make, in `folder`, by `arguments` for trinity-fit."""

    label: str
    seed: int
    folder: Path
    arguments: list[str]

    def fingerprint(self) -> str:
        """Of all that decides the run: the configs' contents and the options."""
        contents: list[str] = []
        for part in expand(self.arguments):
            contents += ["--config", part.text] if isinstance(part, Config) else [_content(part)]
        return hashlib.sha256(json.dumps(contents).encode()).hexdigest()

    @property
    def finished(self) -> bool:
        """Whether a run of it has come to its end."""
        from trinity.evaluation.report import FILE_NAME  # seconds that --help need not wait for

        return any(self.folder.glob(f"version_*/{FILE_NAME}"))

    @property
    def checkpoint(self) -> Path | None:
        """The newest checkpoint of a run that did not."""
        found = list(self.folder.glob("version_*/checkpoints/last.ckpt"))
        return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _content(argument: str) -> str:
    """What a file holds that an option names; else the argument itself."""
    try:
        return Path(argument).read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, ValueError):  # no file, or no name that one could have
        return argument


def _run_all(options: argparse.Namespace, fit_options: list[str], console: Console) -> list[Path]:
    """Make every run that is not there yet; returns their folders."""
    if options.jobs < 1:
        raise UserError(f"--jobs is {options.jobs}, but must be at least 1.")
    jobs = [_job(spec, seed, options.root, fit_options) for spec in options.config for seed in options.seeds]
    folders = [job.folder for job in jobs]
    twice = sorted({str(folder) for folder in folders if folders.count(folder) > 1})
    if twice:
        raise UserError(f"Two runs would share {twice[0]}; give configs labels of their own, LABEL=FILE.")
    for job in jobs:
        if job.seed == options.seeds[0]:
            check_options(expand(job.arguments))
    for job in jobs:
        _claim(job)
    waiting = [job for job in jobs if not job.finished]
    console.print(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are there; {len(waiting)} to go.")
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            failures = [failed for failed in pool.map(lambda job: _run(job, console), waiting) if failed]
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)  # those under way were interrupted, too
            raise UserError("Stopped. Repeat the command to go on where each run was.") from None
    if failures:
        raise UserError(
            f"{len(failures)} of {len(jobs)} runs failed; the first: {failures[0]} The others are kept: "
            "repeat the command to go on."
        )
    return folders


def _job(spec: str, seed: int, root: Path, fit_options: list[str]) -> _Job:
    label, given, files = spec.rpartition("=")
    paths = [find_config(name) for name in files.split("+")]
    label = label if given else "+".join(path.stem for path in paths)
    arguments = [word for path in paths for word in ("--config", str(path))]
    arguments += [*fit_options, "--label", label, "--name", f"seed_{seed}", "--seed_everything", str(seed)]
    arguments += ["--trainer.default_root_dir", str(root / label)]
    return _Job(label, seed, root / label / f"seed_{seed}", arguments)


def _claim(job: _Job) -> None:
    """Raises UserError where the folder holds runs of another config: they would be taken for this one's."""
    path, fingerprint = job.folder / "fingerprint", job.fingerprint()
    if path.is_file() and path.read_text() != fingerprint:
        raise UserError(
            f"{job.folder} holds a run with other options or configs than these; give another --root, or "
            "another label (LABEL=FILE)."
        )
    job.folder.mkdir(parents=True, exist_ok=True)
    path.write_text(fingerprint)


def _run(job: _Job, console: Console) -> str | None:
    """Run, or go on from the last checkpoint; says what failed."""
    arguments, checkpoint = list(job.arguments), job.checkpoint
    if checkpoint is not None:
        arguments += ["--ckpt_path", str(checkpoint)]
    started = time.monotonic()
    log = job.folder / "trinity-fit.log"
    with log.open("a") as file:
        done = subprocess.run(  # noqa: S603 - this program itself
            [sys.executable, "-c", _FIT, *arguments], stdout=file, stderr=subprocess.STDOUT, check=False
        )
    name = f"{job.label}, seed {job.seed}"
    if done.returncode or not job.finished:
        lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        console.print(f"{name}: failed after {time.monotonic() - started:.0f} s")
        return f"{name}: {lines[-1]} (all of it in {log})"
    console.print(f"{name}: done in {time.monotonic() - started:.0f} s")
    return None


def _compare(places: Sequence[Path], options: argparse.Namespace, console: Console) -> None:
    # Seconds that --help and a mistake in the options need not wait for.
    from trinity.evaluation.figures import draw
    from trinity.evaluation.method_report import MethodReport
    from trinity.evaluation.methods import compare_methods
    from trinity.evaluation.runs import find_runs

    if not 0 < options.level < 1:
        raise UserError(f"--level is {options.level}, but must lie between 0 and 1.")
    comparison = compare_methods(find_runs(places), options.correction, options.level)
    report = MethodReport(comparison, options.correction)
    report.print(Console(width=None if console.is_terminal else _TABLE_WIDTH))
    output = options.output or (options.root if options.config else Path("comparison"))
    output.mkdir(parents=True, exist_ok=True)
    figures = draw(comparison, output)
    path = output / "comparison.md"
    path.write_text(report.markdown([figure.name for figure in figures]))
    console.print(f"Written: {', '.join(map(str, [path, *figures]))}")
    logdir = os.path.commonpath([place.resolve() for place in places])
    console.print(f"All runs on one axis: tensorboard --logdir {logdir} (tags by_trajectories/*)")
