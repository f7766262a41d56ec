"""CoordinatorModule: the SVF-adapted small language model and its head, trained by an objective."""

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
from trinity.coordinator.gradients import LogitGradients
from trinity.coordinator.heads import Head, LinearHead
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.slm import SLMConfig, load_slm
from trinity.coordinator.svf import decompose
from trinity.data import TaskDataModule
from trinity.episode.policy import OneAgentEach, Policy, Selection
from trinity.episode.rollout import Draw, EpisodeSettings
from trinity.episode.scheduler import Failure, Graded, Job
from trinity.errors import UserError
from trinity.objectives.base import TRAINING_STAGES, Objective, Update
from trinity.objectives.evolution import Evolution
from trinity.objectives.ledger import account
from trinity.objectives.means import TrajectoryMeans
from trinity.optimizers.base import EvolutionStrategy
from trinity.optimizers.sep_cma import SepCMAES
from trinity.player import Player
from trinity.pool.base import Paid, Pool
from trinity.pool.budget import Budget
from trinity.pool.cache import CacheSettings
from trinity.ranks import Ranks
from trinity.rewards.rewards import Rewards
from trinity.settings import BlockScales, Extraction, SelectionSettings, SVFSettings
from trinity.tasks.task import Task

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
        self.automatic_optimization = False
        graders = rewards if rewards is not None else Rewards()
        self.player = Player(pool, episode, graders, cache, budget, concurrency)
        self.pool = pool
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
        self.torch_threads = torch_threads
        self.seed = seed
        self.training_means = TrajectoryMeans(pool.agents)
        self.validation_means = TrajectoryMeans(pool.agents)
        self.update: Update | None = None
        self.spent = Paid()
        self._coordinator: Coordinator | None = None

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

        Raises UserError for what the player's checks and `configure_model` raise it.
        """
        self.player.check()
        self.player.check_tasks((*data.splits.train, *data.splits.validation, *data.splits.test))
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
        layout = ParameterLayout.of(self.blocks(), self._scales())
        self._coordinator = Coordinator(encoder, engine, svf, head, layout, self.extraction.hidden_norm)
        self.initial_theta = self.theta()

    def setup(self, stage: str) -> None:
        """Pin the threads again (Lightning's launcher of several processes sets a number of its own), and
        share budget and paces among the processes."""
        self._pin_threads()
        self.player.share()

    def _pin_threads(self) -> None:
        if self.torch_threads is not None:
            torch.set_num_threads(self.torch_threads)

    @property
    def agents(self) -> int:
        """L, the size of the pool."""
        return len(self.pool.agents)

    def blocks(self) -> dict[str, nn.Parameter]:
        """theta's blocks by name, in their order."""
        blocks = {f"head.{name}": parameter for name, parameter in self.head.named_parameters()}
        if self.svf_settings.enabled:
            blocks["svf"] = self.svf_scales
        return blocks

    def _scales(self) -> dict[str, float]:
        return {
            name: self.block_scales.svf if name == "svf" else self.block_scales.head for name in self.blocks()
        }

    def theta(self) -> Tensor:
        """The parameters as one vector (n,), float32, on the CPU: the mean of the search."""
        return self.layout.pack(self.blocks()).detach().to("cpu", torch.float32, copy=True)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimizer over theta's blocks, each a parameter group with its scale.

        An optimizer that follows gradients gets its learning rate in units of x, like the step size of an
        evolution strategy: block b learns at scale_b times the rate.
        """
        scales = self._scales()
        groups = [{"params": [p], "scale": scales[name]} for name, p in self.blocks().items()]
        optimizer = self.optimizer_factory(groups)  # type: ignore[arg-type]
        if isinstance(optimizer, EvolutionStrategy):
            optimizer.use_seed(self.seed)
            return optimizer
        for group in optimizer.param_groups:
            group["lr"] *= group["scale"]
        return optimizer

    def training_step(self, batch: list[Task], batch_idx: int) -> None:
        """One update; see `update` for what it did."""
        generation = self.trainer.global_step
        progress = min(1.0, generation / self.trainer.max_steps) if self.trainer.max_steps > 0 else 0.0
        for head in (self.head, self.coordinator.head):
            head.anneal(progress, generation)
        optimizer: Any = self.optimizers()
        update = self.objective.step(self, optimizer, batch, generation)
        means = self._means(self.training_means, update.ledger.kept)
        means.pop("J", None)  # what J of a training step is, the objective says
        self.update = replace(update, metrics={**update.metrics, **means})

    def validation_step(self, batch: list[Task], batch_idx: int) -> None:
        """J of the mean theta, as evaluated, on the validation tasks."""
        results = self.play(self.theta()[None], batch, stage="validation", generation=0)
        means = self._means(self.validation_means, account(results, max_dropped_share=1.0).kept)
        self.log("J/validation", means["J"], logger=False, batch_size=len(batch))

    @staticmethod
    def _means(metric: TrajectoryMeans, graded: Sequence[Graded]) -> dict[str, float]:
        """Every process knows all trajectories, and adds its share of them."""
        ranks = Ranks.here()
        metric.reset()
        metric.update(graded[ranks.rank :: ranks.count])
        means: dict[str, float] = metric.compute()
        return means

    def play(
        self,
        thetas: Tensor,
        tasks: Sequence[Task],
        *,
        stage: str,
        generation: int,
        shared_draws: bool = True,
        copies: int = 1,
    ) -> list[Graded | Failure]:
        """`copies` trajectories for each candidate of thetas (lambda, n) and task, task by task.

        The processes of a distributed run share the candidates, and all of them get all results: each has to
        call this. `stage` "train" or "again" takes the training selection, any other the evaluation's;
        several copies, whose only difference is chance, are always sampled.

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
        training = stage in TRAINING_STAGES
        selection = self.selection.training if training else self.selection.evaluation
        shared = shared_draws and copies == 1
        draws = [
            Draw(self.seed, stage, generation, None if shared else i) for i in range(len(thetas) * copies)
        ]
        # Task by task, so that what the engine keeps of a task's transcripts is used while it is there.
        name = "candidate" if training else "trained"
        jobs = [Job(task, i // copies, draw, name) for task in tasks for i, draw in enumerate(draws)]
        if training:
            self.player.count(len(jobs))
        chosen: Selection = "sample" if copies > 1 else selection
        results = self.player.play_together(self.coordinator, jobs, chosen, self.coordinator.encoder.clip)
        return self._accounted(results)

    def play_agents(
        self, tasks: Sequence[Task], *, stage: str, samples: int, generation: int
    ) -> list[Graded | Failure]:
        """`samples` single Worker turns of each agent on each task; candidate i is agent i.

        All processes of a distributed run get all results. Raises as `play` does.
        """
        jobs = [
            Job(
                task,
                agent,
                Draw(self.seed, f"{stage}-{sample}", generation),
                f"single:{self.pool.agents[agent]}",
            )
            for task in tasks
            for agent in self.episode.places(len(self.pool.agents))
            for sample in range(samples)
        ]
        self.player.count(len(jobs))
        policy = OneAgentEach(len(self.pool.agents))
        alone = replace(self.episode, max_turns=1)
        results = self.player.play_together(policy, jobs, "argmax", self.coordinator.encoder.clip, alone)
        return self._accounted(results)

    def run(
        self,
        policy: Policy,
        jobs: Sequence[Job[Task]],
        selection: Selection,
        episode: EpisodeSettings | None = None,
    ) -> list[Graded | Failure]:
        """Trajectories of any policy on this module's pool, by this process alone, under `episode`'s rules in
        place of the run's where they are given."""
        results = self.player.play(policy, jobs, selection, self.coordinator.encoder.clip, episode)
        return self._accounted(results)

    def _accounted(self, results: list[Graded | Failure]) -> list[Graded | Failure]:
        self.spent += Paid.total(result.paid for result in results)
        return results

    def gradients(self) -> LogitGradients:
        """The logits at the present theta, differentiable, and the gradients that their backward passes
        leave."""
        return LogitGradients(self.coordinator, self.blocks())

    def features(self, tasks: Sequence[Task]) -> Tensor:
        """The unadapted model's normalised hidden states (tasks, d) at the tasks' queries, on the CPU."""
        coordinator = self.coordinator
        found = [coordinator.original_hidden(coordinator.encoder.encode([task.query])) for task in tasks]
        return torch.stack(found).cpu()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Record what a bit-for-bit continuation also depends on."""
        checkpoint["trinity"] = self._conditions()
        checkpoint["spent"] = self.player.spent()
        checkpoint["paid"] = asdict(self.spent)
        checkpoint["objective"] = self.objective.state()

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
        if "spent" in checkpoint:  # earlier versions kept neither
            self.spent = Paid(**checkpoint.get("paid", {}))
            lost = self.player.go_on(checkpoint["spent"])
            # Of tokens that a lost generation took only the sum is known.
            self.spent += Paid(lost.usd, lost.calls, 0, lost.tokens)
        self.objective.load_state(checkpoint.get("objective", {}))
        for name, ours_now in self._conditions().items():
            written = checkpoint["trinity"][name]
            if written != ours_now:
                warnings.warn(
                    f"The checkpoint was written with {name} = {written}, and this run has {ours_now}: it "
                    "will not end as the uninterrupted run would have.",
                    stacklevel=1,
                )

    def close(self) -> None:
        """Let go of connections, processes and threads."""
        self.player.close()
        if self._coordinator is not None:
            self._coordinator.close()
