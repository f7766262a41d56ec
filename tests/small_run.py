"""The config of a run that takes a second, for tests of whole runs."""

from pathlib import Path
from typing import Any


def small_run(runs: Path, slm_cache: Path, steps: int, tasks: dict[str, int], **model: Any) -> dict[str, Any]:
    """An overlay for configs/quickstart.yaml: a tiny random language model, 4 candidates on 3 tasks.

    `runs` takes the run's folder, `slm_cache` the language model; `model` adds to the model's section.
    """
    return {
        "trainer": {"max_steps": steps, "check_val_every_n_epoch": 2, "default_root_dir": str(runs)},
        "model": {
            "slm": {"cache_dir": str(slm_cache), "random": {"hidden_size": 32, "heads": 2}},
            "optimizer": {
                "class_path": "trinity.optimizers.sep_cma.SepCMAES",
                "init_args": {"population_size": 4},
            },
            **model,
        },
        "data": {
            "minibatch": 3,
            "source": {"class_path": "trinity.tasks.synthetic.SyntheticTasks", "init_args": tasks},
        },
        "evaluation": {"controls": False},
    }
