"""What `trinity-fit` runs: Lightning's command line, with a check before the training and a report after."""

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch
from lightning.fabric.utilities.distributed import _suggested_max_num_threads
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console
from transformers.utils import logging as transformers_logging

from callbacks.j_logger import JLogger
from trinity.configs import Config, as_arguments
from trinity.data import TaskDataModule
from trinity.errors import UserError
from trinity.evaluation.forecast import Forecast, Part
from trinity.evaluation.protocol import Evaluation, EvaluationSettings, compare
from trinity.evaluation.report import Report
from trinity.evaluation.statistics import detectable_difference
from trinity.module import CoordinatorModule
from trinity.objectives.base import Plan
from trinity.options import CALLBACKS, LINKED

_TABLE_WIDTH = 110
_TRAINER_DEFAULTS: dict[str, Any] = {
    "max_epochs": -1,
    "max_steps": 60,
    "num_sanity_val_steps": 0,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
    "log_every_n_steps": 1,
}


class _Parser(LightningArgumentParser):
    """Lightning's parser, but a mistake is answered by what is wrong, without pages of usage above it."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the mistake on standard error and exit with code 2."""
        print(f"trinity-fit: {message.strip()}\nAll options: trinity-fit --help-all", file=sys.stderr)
        sys.exit(2)


class TrinityCLI(LightningCLI):
    """LightningCLI with the run's folder, the standard callbacks, and the final comparison."""

    model: CoordinatorModule
    datamodule: TaskDataModule

    def __init__(self, parts: Sequence[str | Config], stack: ExitStack, **kwargs: Any) -> None:
        self._parts = parts
        self._stack = stack
        super().__init__(CoordinatorModule, TaskDataModule, args=["fit"], **kwargs)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """As Lightning does, with the configs as files."""
        with TemporaryDirectory(prefix="trinity-") as folder:
            super().parse_arguments(parser, [*args, *as_arguments(self._parts, Path(folder))])

    def instantiate_classes(self) -> None:
        """As Lightning does, and see to it that the module lets go of what it holds, however the run ends."""
        super().instantiate_classes()
        self._stack.callback(self.model.close)

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Only `fit`."""
        return {"fit": LightningCLI.subcommands()["fit"]}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Beside Lightning's own: the run's name, the evaluation, and the standard callbacks' options."""
        parser.add_argument("--name", type=str, default="run", help="Name of the run's folder below logs/.")
        parser.add_argument(
            "--label", type=str, default="", help="What comparisons call the run; empty: its name."
        )
        parser.add_argument(
            "--dry_run", action="store_true", help="Say what the run would cost, and call nobody."
        )
        parser.add_argument("--evaluation", type=EvaluationSettings, default=EvaluationSettings())
        for keys, origin in LINKED.items():
            parser.link_arguments(origin, ".".join(keys), compute_fn=int)
        for name, path in CALLBACKS.items():
            module, _, callback = path.rpartition(".")
            parser.add_lightning_class_args(getattr(importlib.import_module(module), callback), name)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """A trainer that logs to `logs/<name>/version_N`, or below its default_root_dir if that is given."""
        config = self._get(self.config, "trainer")
        if config.get("logger") in (None, True):
            root = config.get("default_root_dir") or "logs"
            kwargs["logger"] = TensorBoardLogger(save_dir=root, name=self._get(self.config, "name"))
        try:
            return super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, ValueError) as error:
            raise UserError(f"The trainer's options don't go together: {error}") from None

    @property
    def folder(self) -> Path:
        """The run's folder."""
        # Not trainer.log_dir, which all processes of a run have to ask for together.
        return Path(getattr(self.trainer.logger, "log_dir", None) or self.trainer.default_root_dir)

    def before_fit(self) -> None:
        """Say where the run goes, on how many threads, and what it can find out."""
        console = Console(
            highlight=False, soft_wrap=True, markup=False, quiet=not self.trainer.is_global_zero
        )
        console.print(f"Run folder: {self.folder}")
        self._check_options()
        console.print(f"Threads of tensor work: {self._threads()}")
        if self._get(self.config, "dry_run"):
            self._print_forecast(console)
            sys.exit(0)
        self.model.prepare(self.datamodule)
        console.print(self.model.layout.describe())
        if self.trainer.is_global_zero:
            self._print_power(console)

    def _check_options(self) -> None:
        strategy = self.trainer.strategy
        launched = isinstance(strategy, DDPStrategy) and strategy._start_method == "popen"
        if self.trainer.world_size > 1 and not launched:
            raise UserError(
                f"trainer.strategy is {self._get(self.config, 'trainer').get('strategy')!r}, but only ddp "
                "shares a generation among several processes; set it to ddp."
            )
        path = self._get(self.config, "ckpt_path")
        if path is not None and not Path(path).is_file():
            raise UserError(f"--ckpt_path is {str(path)!r}, but there is no such file; give a last.ckpt.")

    def _threads(self) -> str:
        """How many, for each process, and who says so."""
        if self.model.torch_threads is not None:
            return f"{self.model.torch_threads} (model.torch_threads)"
        count, launched = torch.get_num_threads(), self.trainer.strategy.launcher is not None
        if launched and self.trainer.world_size > 1 and "OMP_NUM_THREADS" not in os.environ:
            count = _suggested_max_num_threads(self.trainer.num_devices)  # as the launcher will set them
        return (
            f"{count}, torch's own number (model.torch_threads sets another; one is fastest for small models)"
        )

    def _print_forecast(self, console: Console) -> None:
        model, splits, trainer = self.model, self.datamodule.splits, self.trainer
        model.configure_model()
        optimizer = model.configure_optimizers()
        turns, steps, agents = model.episode.max_turns, max(trainer.max_steps, 0), len(self._offered())
        plan = Plan(
            steps=steps,
            minibatch=self.datamodule.minibatch_size,
            n=model.layout.n,
            population=getattr(optimizer, "population_size", 1),
            agents=agents,
            training_tasks=len(splits.train),
            temperature=model.episode.decode.temperature,
        )
        every = trainer.check_val_every_n_epoch or 1
        settings = self._settings()
        parts = [
            Part("training", model.objective.planned(plan), 1 if model.objective.single_turn else turns),
            Part("validation", steps // every * len(splits.validation), turns),
            Part("single models", agents * len(splits.test), 1),
            Part("trained, initial, random", 3 * len(splits.test), turns),
        ]
        if settings.whole_budget and turns > 1:
            parts.append(Part("single models, whole budget", agents * len(splits.test), 1, turns))
        if settings.measure_disagreement:
            parts.append(Part("disagreement", agents * len(splits.train), 1))
        queries = [len(task.query) for task in (*splits.train, *splits.validation, *splits.test)]
        mean = sum(queries) / max(len(queries), 1)
        wide = Console(
            highlight=False, soft_wrap=True, markup=False, width=None if console.is_terminal else _TABLE_WIDTH
        )
        Forecast(parts, model.episode, mean, model.pool.prices).print(wide)
        if settings.controls:
            console.print("Not counted: evaluation.controls, which plays thousands of trajectories more.")

    def _print_power(self, console: Console) -> None:
        measured = self._settings().measure_disagreement
        splits = self.datamodule.splits
        tasks = len(splits.test)
        for share in [self._evaluation().disagreement(splits.train)] if measured else [0.1, 0.3]:
            console.print(
                f"Smallest detectable effect on {tasks} held-out tasks (paired, 80 % power, 5 % level): "
                f"{100 * detectable_difference(tasks, share):.1f} points if two policies differ on "
                f"{100 * share:.0f} % of them{' (measured on the training tasks)' if measured else ''}."
            )

    def after_fit(self) -> None:
        """Print the table, write summary.json, and say where everything is; on the first process only."""
        if not self.trainer.is_global_zero:
            return
        console = Console(highlight=False, soft_wrap=True, markup=False)
        model, splits = self.model, self.datamodule.splits

        def coordinator(theta: Any) -> Any:
            model.coordinator.load(theta[None])
            return model.coordinator

        comparison = compare(
            self._evaluation(),
            trained=lambda: coordinator(model.theta()),
            initial=lambda: coordinator(model.initial_theta),
            tasks=splits.test,
            search_tasks=splits.train,
            settings=self._settings(),
            selection=model.selection.evaluation,
        )
        history = next(c for c in self.trainer.callbacks if isinstance(c, JLogger))  # type: ignore[attr-defined]
        report = Report(comparison, splits.test, model.theta(), model.seed, history.j_series, model.spent)
        report.print(Console(width=None if console.is_terminal else _TABLE_WIDTH))
        report.write(self.folder)
        console.print(f"Run folder: {self.folder}")

    def _offered(self) -> Sequence[int]:
        """The places of the agents on offer."""
        return self.model.episode.places(len(self.model.pool.agents))

    def _settings(self) -> EvaluationSettings:
        return self._get(self.config_init, "evaluation")  # type: ignore[no-any-return]

    def _evaluation(self) -> Evaluation:
        return Evaluation(self.model, self.model.pool, self.model.episode, self.model.seed)


def _quiet() -> None:
    """Silence what is no news to a user: tips, bars of model loading, notes on one-item loaders."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    transformers_logging.disable_progress_bar()
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*LightningCLI's args parameter.*",
        ".*LeafSpec.*",
        ".*Checkpoint directory .* exists.*",
        ".*The dirpath has changed.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def train(parts: Sequence[str | Config], stack: ExitStack) -> TrinityCLI:
    """Train and report, and return what was used; the stack closes it.

    Raises UserError for a mistake, and exits with code 2 for one in the options themselves.
    """
    _quiet()
    return TrinityCLI(
        parts,
        stack,
        trainer_defaults=_TRAINER_DEFAULTS,
        seed_everything_default=0,
        parser_class=_Parser,
        parser_kwargs={"prog": "trinity-fit", "allow_abbrev": False},
    )
