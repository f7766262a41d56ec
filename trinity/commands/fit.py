"""`trinity-fit --config NAME` trains a coordinator and reports what it learned."""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from trinity.configs import expand
from trinity.errors import UserError
from trinity.options import check_options

if TYPE_CHECKING:
    from trinity.commands.training import TrinityCLI

HELP = """\
usage: trinity-fit --config NAME [--config OVERLAY ...] [--OPTION VALUE ...]

Train a coordinator of LLMs, and report what it learned. Later configs and options win.

  trinity-fit --config quickstart                        nothing to download, nothing to pay
  trinity-fit --config lcb_sepcma --config presets/paper --trainer.max_steps 20 --dry_run

  --config NAME             a file, or a config that comes with the package: quickstart,
                            lcb_sepcma, heads/sparse, optimizers/sft, ... (.yaml may be left out)
  --dry_run                 say what the run would cost, and call nobody
  --ckpt_path FILE          go on from a run's checkpoints/last.ckpt
  --name NAME               of the run's folder, logs/NAME/version_N
  --seed_everything N       of all random draws

  --trainer.max_steps N                        generations
  --data.minibatch N                           tasks a generation
  --data.source CLASS                          where tasks come from; your own file:
                                               trinity.tasks.local.JsonLinesTasks
  --data.source.init_args.path FILE            its lines: {"query": ..., "reference": ...}
  --model.pool CLASS                           the LLMs to pick from
  --model.slm.source NAME                      the small language model: hub id, folder, .gguf
  --model.head CLASS                           hidden state -> choice
  --model.optimizer.init_args.sigma0 X         the first step size
  --model.episode.max_turns K                  turns of a trajectory, at most
  --model.budget.usd X                         what the run may spend
  --model.cache.path FILE                      where answers are kept, so that none is paid twice
  --model.torch_threads N                      for all tensor work

  --print_config            print the configuration that a command would run
  --model.pool.help CLASS   the options of one class (likewise data.source, model.head, ...)
  --help-all                all options
"""


def run(argv: Sequence[str], stack: ExitStack) -> "TrinityCLI":
    """Train and report as `trinity-fit` does, and return what it used; the stack closes it.

    Raises UserError for a mistake, and exits with code 2 for one in the options themselves.
    """
    parts = ["--help"] if "--help-all" in argv else expand(argv)
    if parts != ["--help"]:
        check_options(parts)
    # Seconds, which no mistake in a name and no --help has to wait for.
    from trinity.commands.training import train

    return train(parts, stack)


def fit(argv: Sequence[str] | None = None) -> None:
    """`trinity-fit`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(HELP, end="", file=sys.stderr)
        sys.exit(2)
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return
    try:
        _fit(arguments)
    except KeyboardInterrupt:  # a second one, while the run was being closed
        print("trinity-fit: Stopped while closing; go on with --ckpt_path.", file=sys.stderr)
        sys.exit(130)


def _fit(arguments: Sequence[str]) -> None:
    with ExitStack() as stack:
        try:
            run(arguments, stack)
        except UserError as error:
            if os.environ.get("LOCAL_RANK", "0") != "0":
                # The first process of this machine raises it, too, and says it. Another exit code than 0
                # would have Lightning kill that one before it does.
                sys.exit(0)
            print(f"trinity-fit: {error}", file=sys.stderr)
            sys.exit(2)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            print(
                f"trinity-fit: Cannot write {error.filename or 'a file of the run'} ({error.strerror}): make "
                "room and go on with --ckpt_path.",
                file=sys.stderr,
            )
            sys.exit(2)
