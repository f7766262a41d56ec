"""Who may import whom, and what no file may call. Files are parsed, not imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FREE = {"trinity", "trinity.errors", "trinity.keyed"}
# What a room may import of the package beside itself and FREE; a whole room ends in a full stop.
ALLOWED = {
    "coordinator": set[str](),
    "pool": set[str](),
    "rewards": set[str](),
    "tasks": set[str](),
    "optimizers": set[str](),
    "episode": {"trinity.pool.base"},
    "objectives": {"trinity.optimizers.base", "trinity.tasks.task", "trinity.episode.", "trinity.pool.base"},
    "evaluation": {"trinity.tasks.task", "trinity.episode.", "trinity.pool.base"},
}
ROOMS = {f"trinity.{room}." for room in ALLOWED}
# The console scripts tie everything to the shell, and nothing imports them.
ALLOWED["commands"] = ROOMS | {
    "trinity.configs",
    "trinity.options",
    "trinity.data",
    "trinity.module",
    "callbacks.",
}
# The single modules above or below the rooms.
ALLOWED_MODULES = {
    "errors": set[str](),
    "keyed": set[str](),
    "ranks": set[str](),
    "data": {"trinity.tasks."},
    "settings": {"trinity.coordinator.", "trinity.episode."},
    "player": {
        "trinity.episode.",
        "trinity.pool.",
        "trinity.rewards.grade",
        "trinity.rewards.rewards",
        "trinity.tasks.task",
        "trinity.ranks",
    },
    "module": ROOMS | {"trinity.data", "trinity.player", "trinity.ranks", "trinity.settings"},
    "configs": set[str](),
    "signatures": set[str](),
    "options": {"trinity.configs", "trinity.signatures"},
}
INSIDE_THE_SANDBOX = ROOT / "trinity" / "rewards" / "child"
CALLBACKS = ROOMS | {"trinity.data", "trinity.module"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
RUNNERS = {"sympify", "parse_expr"}


def imported(source: str) -> Iterator[str]:
    """Absolute names of what a file imports, also inside functions and `if TYPE_CHECKING`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import; write the whole name"
            assert node.module is not None
            for alias in node.names:
                # `from trinity import keyed` names a module, `from trinity.keyed import uniform` does not.
                is_module = f"{node.module}.{alias.name}".replace(".", "/")
                whole = (ROOT / f"{is_module}.py").exists() or (ROOT / is_module).is_dir()
                yield f"{node.module}.{alias.name}" if whole else node.module


def trespasses(source: str, allowed: set[str], own: str) -> list[str]:
    """The package's modules that a file imports and may not."""
    inside = [name for name in imported(source) if name.split(".")[0] in ("trinity", "callbacks", "tests")]
    welcome = tuple(name for name in {*allowed, own} if name.endswith("."))
    return [
        name
        for name in inside
        if name not in FREE | allowed and not any(f"{name}.".startswith(room) for room in welcome)
    ]


def dangers(source: str) -> list[str]:
    """Calls that could run what an LLM or a file says."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = node.module if isinstance(node, ast.ImportFrom) else None
            names = {origin or "", *(alias.name for alias in node.names)}
            found += sorted(names & (PICKLES | RUNNERS | {"builtins"}))
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else None
            attribute = node.func.attr if isinstance(node.func, ast.Attribute) else None
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            of_os = isinstance(owner, ast.Name) and owner.id == "os" and attribute in ("system", "popen")
            of_torch = isinstance(owner, ast.Name) and owner.id == "torch" and attribute == "load"
            options = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            if name in BUILTINS | RUNNERS or attribute in RUNNERS or of_os:
                found.append(name or attribute or "")
            if of_torch and options.get("weights_only") is not True:
                found.append("torch.load")
            if any(k.arg == "shell" for k in node.keywords) and options.get("shell") is not False:
                found.append("shell")
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_every_file_belongs_to_a_room_or_is_known() -> None:
    places = {path.relative_to(ROOT / "trinity").parts for path in files("trinity")}
    assert {parts[0] for parts in places if len(parts) > 1} == set(ALLOWED)
    assert {parts[0].removesuffix(".py") for parts in places if len(parts) == 1} - {"__init__"} <= set(
        ALLOWED_MODULES
    )
    assert len(places) > 30


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    for path in files(f"trinity/{room}"):
        assert trespasses(path.read_text(), ALLOWED[room], f"trinity.{room}.") == [], path


@pytest.mark.parametrize("module", ALLOWED_MODULES)
def test_a_single_module_imports_only_what_lies_below_it(module: str) -> None:
    source = (ROOT / "trinity" / f"{module}.py").read_text()
    assert trespasses(source, ALLOWED_MODULES[module], f"trinity.{module}") == []


def test_callbacks_import_all_but_the_console_scripts() -> None:
    for path in files("callbacks"):
        assert trespasses(path.read_text(), CALLBACKS, "callbacks.") == [], path


@pytest.mark.parametrize(
    ("source", "room", "caught"),
    [
        ("from trinity.tasks.task import Task", "coordinator", ["trinity.tasks.task"]),
        ("def f():\n    import trinity.pool.base", "rewards", ["trinity.pool.base"]),
        ("from trinity.pool.simulated import SimulatedPool", "episode", ["trinity.pool.simulated"]),
        ("from trinity.pool import simulated", "episode", ["trinity.pool.simulated"]),
        ("from trinity.pool import base", "episode", []),
        ("from trinity.coordinator import heads", "episode", ["trinity.coordinator.heads"]),
        ("from trinity.commands import fit", "objectives", ["trinity.commands.fit"]),
        ("from trinity.commands.fit import run", "evaluation", ["trinity.commands.fit"]),
        ("from trinity.module import CoordinatorModule", "evaluation", ["trinity.module"]),
        ("if TYPE_CHECKING:\n    from trinity.episode import roles", "pool", ["trinity.episode.roles"]),
        ("import callbacks.j_logger", "evaluation", ["callbacks.j_logger"]),
        ("from trinity.rewards import rewards", "objectives", ["trinity.rewards.rewards"]),
        ("from trinity import keyed\nfrom trinity.errors import UserError", "tasks", []),
        ("from trinity.episode.rollout import Draw\nimport trinity.episode", "evaluation", []),
    ],
)
def test_the_rule_catches_trespasses(source: str, room: str, caught: list[str]) -> None:
    assert trespasses(source, ALLOWED[room], f"trinity.{room}.") == caught


def test_nothing_runs_what_an_llm_or_a_file_says_outside_the_sandbox() -> None:
    for path in [*files("trinity"), *files("callbacks")]:
        if path.parent != INSIDE_THE_SANDBOX:
            assert dangers(path.read_text()) == [], path


def test_what_runs_inside_the_sandbox_is_not_imported_outside() -> None:
    executing = {f"trinity.rewards.child.{name}" for name in ("jobs", "runner", "unit")}
    for path in [*files("trinity"), *files("callbacks")]:
        if path.parent != INSIDE_THE_SANDBOX:
            assert not executing & set(imported(path.read_text())), path


def test_what_runs_inside_the_sandbox_imports_nothing_else() -> None:
    for path in files("trinity/rewards/child"):
        inside = [name for name in imported(path.read_text()) if name.startswith("trinity")]
        assert all(name.startswith("trinity.rewards.child") for name in inside), path


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("x = eval(text)", ["eval"]),
        ("exec(text)", ["exec"]),
        ("import pickle", ["pickle"]),
        ("from pickle import load", ["pickle"]),
        ("import builtins", ["builtins"]),
        ("subprocess.run(text, shell=True)", ["shell"]),
        ("subprocess.run(text, shell=flag)", ["shell"]),
        ("os.system(text)", ["system"]),
        ("sympy.sympify(text)", ["sympify"]),
        ("from sympy.parsing.sympy_parser import parse_expr", ["parse_expr"]),
        ("torch.load(path)", ["torch.load"]),
        ("torch.load(path, weights_only=False)", ["torch.load"]),
        ("torch.load(path, weights_only=True)", []),
        ("model.eval(); re.compile(x); asyncio.create_subprocess_exec(x); ast.literal_eval(x)", []),
    ],
)
def test_the_rule_catches_dangers(source: str, caught: list[str]) -> None:
    assert dangers(source) == caught
