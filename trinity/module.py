"""CoordinatorModule: the SVF-adapted small language model and its head, trained by an objective."""

import asyncio
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer

from trinity.coordinator.coordinator import Coordinator
from trinity.coordinator.encoding import TranscriptEncoder
from trinity.coordinator.engine import Engine, EngineSettings
from trinity.coordinator.heads import Head, LinearHead
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.slm import SLMConfig, load_slm
from trinity.coordinator.svf import decompose
from trinity.data import TaskDataModule
from trinity.episode.calls import Calls
from trinity.episode.journal import Journal
from trinity.episode.policy import Policy, Selection
from trinity.episode.records import from_record, to_record
from trinity.episode.rollout import Draw, EpisodeSettings, Rollout
from trinity.episode.scheduler import Failure, Graded, Job, run_jobs
from trinity.errors import UserError
from trinity.objectives.base import Objective, Update
from trinity.objectives.evolution import Evolution
from trinity.objectives.ledger import account
from trinity.optimizers.base import EvolutionStrategy
from trinity.optimizers.sep_cma import SepCMAES
from trinity.pool.base import DecodeParameters, Pool
from trinity.pool.budget import Budget, Meter, Spent
from trinity.pool.cache import CacheSettings, CompletionCache
from trinity.pool.reliable import ReliablePool
from trinity.ranks import Ranks
from trinity.rewards.rewards import Rewards
from trinity.settings import BlockScales, Extraction, SelectionSettings, SVFSettings
from trinity.tasks.task import Task

_JUDGE_DECODE = DecodeParameters(max_tokens=2048)


OptimizerFactory = Callable[[Iterable[Tensor]], Optimizer]
HeadFactory = Callable[[int, int], Head]


class CoordinatorModule(LightningModule):
    """One training step is one generation; what it does is the objective's business.

    Trained are the head's parameters and the singular-value scales; the language model itself is frozen,
    lives outside the module's state, and so in no checkpoint.

    Args:
        pool: the LLMs to pick from.
        slm: the small language model.
        extraction: transcript -> hidden state.
        svf: which singular-value scales are trained.
        engine: how much of what it computed the decision engine keeps.
        head: hidden state -> logits; a class that takes (hidden size, number of agents).
        block_scales: theta's units, by block.
        optimizer: e.g. `SepCMAES`; takes the parameter groups.
        objective: minibatch -> update.
        episode: the rules of a trajectory.
        selection: sampling or argmax.
        rewards: how answers are graded, e.g. in which sandbox programs run.
        cache: where answers are kept, so that none is paid for twice; None keeps none.
        budget: what the run may spend.
        concurrency: LLM calls in flight at once, all models together; the pool may limit each model, too.
        torch_threads: for all tensor work, whose last bits can depend on it; None leaves torch's own
            number. One is fastest for small models.
        seed: of all keyed draws; the run's seed by default.
    """

    def __init__(
        self,
        pool: Pool,
        slm: SLMConfig = SLMConfig(),  # noqa: B008 - frozen
        extraction: Extraction = Extraction(),  # noqa: B008
        svf: SVFSettings = SVFSettings(),  # noqa: B008
        engine: EngineSettings = EngineSettings(),  # noqa: B008 - frozen
        head: HeadFactory = LinearHead,
        block_scales: BlockScales = BlockScales(),  # noqa: B008
        optimizer: OptimizerFactory = SepCMAES,
        objective: Objective | None = None,
        episode: EpisodeSettings = EpisodeSettings(),  # noqa: B008
        selection: SelectionSettings = SelectionSettings(),  # noqa: B008
        rewards: Rewards | None = None,
        cache: CacheSettings | None = None,
        budget: Budget = Budget(),  # noqa: B008 - frozen
        concurrency: int = 528,
        torch_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if concurrency < 1:
            raise UserError(f"model.concurrency is {concurrency}, but must allow at least 1 call; raise it.")
        self.automatic_optimization = False
        self.pool = pool
        self.cache_settings = cache
        self.budget = budget
        self.run_id = uuid.uuid4().hex
        self._cache: CompletionCache | None = None
        self._meter = Meter(budget)
        self._calls_pool: ReliablePool | None = None
        self.slm_config = slm
        self.extraction = extraction
        self.svf_settings = svf
        self.engine_settings = engine
        self.head_factory = head
        self.block_scales = block_scales
        self.optimizer_factory = optimizer
        self.objective = objective if objective is not None else Evolution()
        self.episode = episode
        self.selection = selection
        self.concurrency = concurrency
        self.torch_threads = torch_threads
        self.seed = seed
        self.update: Update | None = None
        self.journal: Journal | None = None
        self._coordinator: Coordinator | None = None
        self._rewards = rewards if rewards is not None else Rewards()
        self._runner = asyncio.Runner()

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator; there once the module is configured."""
        if self._coordinator is None:
            raise RuntimeError("configure_model() comes first")
        return self._coordinator

    @property
    def layout(self) -> ParameterLayout:
        """theta's blocks."""
        return self.coordinator.layout

    def prepare(self, data: TaskDataModule) -> None:
        """Find mistakes before anything is paid for, then load the model.

        Raises UserError for a pool that can't be used, a task that no answer could be graded on, and what
        `configure_model` raises.
        """
        self._open().check()
        if self._rewards.judge is not None and self._rewards.judge not in self.pool.agents:
            raise UserError(
                f"rewards.judge is {self._rewards.judge!r}, but the pool holds "
                f"{', '.join(self.pool.agents)}; name one of them, or leave it out."
            )
        for task in (*data.splits.train, *data.splits.validation, *data.splits.test):
            self._rewards.check(task)
        self.configure_model()

    def configure_model(self) -> None:
        """Load the language model, decompose its SVF layer, and lay theta out. Lightning calls it, once.

        Raises UserError for a model that can't be loaded.
        """
        if self._coordinator is not None:
            return
        self._pin_threads()
        slm = load_slm(self.slm_config)
        head = self.head_factory(slm.hidden_size, len(self.pool.agents))
        settings = self.svf_settings
        svf = None
        if settings.enabled:
            svf = decompose(
                slm,
                layer=settings.layer,
                matrices=tuple(settings.matrices),
                energy_preserving=settings.energy_preserving,
                cache_dir=self.slm_config.cache_dir,
            )
            self.svf_scales = nn.Parameter(torch.ones(svf.n_scales))
        self.head = head
        encoder = TranscriptEncoder(
            slm,
            rendering=self.extraction.rendering,
            read_position=self.extraction.read_position,
            context=self.extraction.context,
        )
        whole = svf is not None and svf.embedding is not None
        engine = Engine(
            slm,
            layer=svf.layer if svf is not None else slm.layers - 2,
            settings=self.engine_settings,
            full_because="the scales of the token embeddings change every layer" if whole else None,
        )
        layout = ParameterLayout.of(self._blocks(), self._scales())
        self._coordinator = Coordinator(encoder, engine, svf, head, layout, self.extraction.hidden_norm)
        self.initial_theta = self.theta()

    def setup(self, stage: str) -> None:
        """Pin the threads again (Lightning's launcher of several processes sets a number of its own), and
        share budget and paces among the processes."""
        self._pin_threads()
        ranks = Ranks.here()
        if ranks.count > 1:
            self.run_id = str(ranks.gather(self.run_id)[0])
        self._open().share_with(ranks.count)
        if self._cache is not None:
            self._cache.use_run(self.run_id)

    def _pin_threads(self) -> None:
        if self.torch_threads is not None:
            torch.set_num_threads(self.torch_threads)

    def _blocks(self) -> dict[str, nn.Parameter]:
        """theta's blocks by name, in their order."""
        blocks = {f"head.{name}": parameter for name, parameter in self.head.named_parameters()}
        if self.svf_settings.enabled:
            blocks["svf"] = self.svf_scales
        return blocks

    def _scales(self) -> dict[str, float]:
        return {
            name: self.block_scales.svf if name == "svf" else self.block_scales.head
            for name in self._blocks()
        }

    def theta(self) -> Tensor:
        """The parameters as one vector (n,), float32, on the CPU: the mean of the search."""
        return self.layout.pack(self._blocks()).detach().to("cpu", torch.float32, copy=True)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimizer over theta's blocks, each a parameter group with its scale."""
        scales = self._scales()
        groups = [{"params": [p], "scale": scales[name]} for name, p in self._blocks().items()]
        optimizer = self.optimizer_factory(groups)  # type: ignore[arg-type]
        if isinstance(optimizer, EvolutionStrategy):
            optimizer.use_seed(self.seed)
        return optimizer

    def training_step(self, batch: list[Task], batch_idx: int) -> None:
        """One update; see `update` for what it did."""
        generation = self.trainer.global_step
        optimizer: Any = self.optimizers()
        self.update = self.objective.step(self, optimizer, batch, generation)

    def validation_step(self, batch: list[Task], batch_idx: int) -> None:
        """J of the mean theta, as evaluated, on the validation tasks."""
        results = self.play(self.theta()[None], batch, stage="validation", generation=0)
        ledger = account(results, max_dropped_share=1.0)
        self.log("J/validation", ledger.mean_reward, logger=False, batch_size=len(batch))

    def play(
        self,
        thetas: Tensor,
        tasks: Sequence[Task],
        *,
        stage: str,
        generation: int,
        shared_draws: bool = True,
    ) -> list[Graded | Failure]:
        """One trajectory for each candidate of thetas (lambda, n) and task, task by task.

        The processes of a distributed run share the candidates, and all of them get all results: each has to
        call this. `stage` "train" takes the training selection, any other the evaluation's.

        Raises UserError on every process where one of them does, and BudgetReachedError where the budget
        allows no more trajectories.
        """
        ranks = Ranks.here()
        if 1 < len(thetas) < ranks.count:
            raise UserError(
                f"The trainer has {ranks.count} processes, but there are only {len(thetas)} candidates to "
                "share; set fewer devices or num_nodes, or a larger population_size."
            )
        self.coordinator.load(thetas)
        selection = self.selection.training if stage == "train" else self.selection.evaluation
        candidates = range(len(thetas))
        draws = [Draw(self.seed, stage, generation, None if shared_draws else c) for c in candidates]
        # Task by task, so that what the engine keeps of a task's transcripts is used while it is there.
        jobs = [Job(task, c, draws[c]) for task in tasks for c in candidates]
        if stage == "train":
            self._meter.count_trajectories(len(jobs) // ranks.count)
        if ranks.count == 1:
            return self.run(self.coordinator, jobs, selection)
        mine = ranks.share([job.candidate for job in jobs])
        try:
            played = self.run(self.coordinator, [jobs[i] for i in mine], selection, share=ranks.count)
        except UserError as error:
            return self._gathered(ranks, len(jobs), {}, str(error))
        return self._gathered(ranks, len(jobs), dict(zip(mine, played, strict=True)), None)

    @staticmethod
    def _gathered(
        ranks: Ranks, jobs: int, played: dict[int, Graded | Failure], error: str | None
    ) -> list[Graded | Failure]:
        """All ranks' results in the order of the jobs. Raises UserError where any rank met one."""
        records = [[i, to_record(result)] for i, result in played.items()]
        everything = ranks.gather({"error": error, "records": records})
        for found in everything:
            if found["error"] is not None:
                raise UserError(found["error"])
        by_job = {i: from_record(record) for found in everything for i, record in found["records"]}
        return [by_job[i] for i in range(jobs)]

    def run(
        self,
        policy: Policy,
        jobs: Sequence[Job[Task]],
        selection: Selection,
        max_turns: int | None = None,
        *,
        share: int = 1,
    ) -> list[Graded | Failure]:
        """Trajectories of any policy on this module's pool, by this process alone.

        `max_turns` overrides the episode's; `share` processes at work divide the limits on calls.
        """
        settings = self.episode if max_turns is None else replace(self.episode, max_turns=max_turns)
        calls = Calls(self._open(), self.concurrency, share)
        if self._rewards.judge is not None:
            judge = list(self.pool.agents).index(self._rewards.judge)
            self._rewards.judge_by(calls.asker(judge, _JUDGE_DECODE))
        rollout = Rollout(
            policy,
            calls,
            settings,
            self.coordinator.encoder.clip,
            selection,
        )
        return self._runner.run(run_jobs(rollout, jobs, self._rewards.grade, self._finished))

    def _finished(self, draw: Draw, result: Graded | Failure) -> None:
        if self.journal is not None:
            self.journal.add(draw, result)

    def _open(self) -> ReliablePool:
        """The pool behind its cache, budget and retries; made once, when it is first needed."""
        if self._calls_pool is None:
            settings = self.cache_settings
            replay = settings is not None and settings.mode == "replay"
            if settings is not None:
                self._cache = CompletionCache(settings.path, self.run_id, read_only=replay)
            self._calls_pool = ReliablePool(self.pool, self._cache, replay=replay, meter=self._meter)
        return self._calls_pool

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Record what a bit-for-bit continuation also depends on."""
        checkpoint["trinity"] = self._conditions()
        checkpoint["spent"] = {"run": self.run_id, "amounts": asdict(self._meter.total)}

    def _conditions(self) -> dict[str, int]:
        return {"torch_threads": torch.get_num_threads(), "seed": self.seed}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raises UserError for a checkpoint of another shape; warns where the run can't go on bit for bit."""
        ours = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        theirs = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
        if ours != theirs:
            raise UserError(
                f"The checkpoint holds parameters of shapes {theirs}, but this config makes {ours}; "
                "use the config.yaml of the run that wrote it."
            )
        self._go_on_spending(checkpoint.get("spent"))
        for name, ours_now in self._conditions().items():
            written = checkpoint["trinity"][name]
            if written != ours_now:
                warnings.warn(
                    f"The checkpoint was written with {name} = {written}, and this run has {ours_now}: it "
                    "will not end as the uninterrupted run would have.",
                    stacklevel=1,
                )

    def _go_on_spending(self, spent: dict[str, Any] | None) -> None:
        """The budget holds for the whole run: what was spent after the checkpoint is known from the cache."""
        if spent is None:
            return
        self.run_id, known = spent["run"], Spent(**spent["amounts"])
        self._open()
        if self._cache is not None:
            self._cache.use_run(self.run_id)
            known = known.at_least(Spent(*self._cache.spent(self.run_id)))
        self._meter.total = known

    def close(self) -> None:
        """Let go of connections, processes and threads."""
        self._runner.run((self._calls_pool or self.pool).aclose())
        self._runner.close()
        if self._cache is not None:
            self._cache.close()
        if self.journal is not None:
            self.journal.close()
        self._rewards.close()
        if self._coordinator is not None:
            self._coordinator.close()
