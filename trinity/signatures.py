"""What classes take, read from their source: importing them would take seconds."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_NOTHING_OF_THEIR_OWN = {"object", "abc.ABC", "typing.Generic", "typing.Protocol"}
_DEPTH = 8  # of re-exports and base classes; more is taken for a circle


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a class: its annotation, and the module that this is to be understood in."""

    annotation: ast.expr | None
    module: str


Parameters = Mapping[str, Parameter]


class Signatures:
    """Parameters of classes by their dotted paths. Whatever the source doesn't say for sure is None.

    That is: a class that can't be found or is made in another way than by a class statement, takes further
    keywords (`**kwargs`), has a decorator or metaclass that may change what it takes, or several bases.
    Nothing is imported; each module is read once.
    """

    def __init__(self) -> None:
        self._modules: dict[str, ast.Module | None] = {}

    def parameters(self, path: str) -> Parameters | None:
        """What the constructor of the class takes, by name."""
        return self._parameters(path, _DEPTH)

    def method(self, path: str, name: str) -> Parameters | None:
        """What a method that the class itself defines takes."""
        found = self._class(path, _DEPTH)
        function = None if found is None else _method(found[1], name)
        return None if found is None or function is None else _of_function(function, found[0])

    def fields(self, parameter: Parameter) -> Parameters | None:
        """The fields of the dataclass that the parameter is (or None in its place)."""
        alternatives = [a for a in _alternatives(parameter.annotation) if not _is_none(a)]
        if len(alternatives) != 1:
            return None
        path = self._path(alternatives[0], parameter.module)
        found = None if path is None else self._class(path, _DEPTH)
        if path is None or found is None or not _is_dataclass(found[1]):
            return None
        return self.parameters(path)

    def option_strings(self, module: str) -> set[str]:
        """Every literal of the module that is written like an option (`--name`), without the dashes."""
        tree = self._module(module)
        literals = (
            node.value for node in ast.walk(tree or ast.Module([], [])) if isinstance(node, ast.Constant)
        )
        return {
            text[2:]
            for text in literals
            if isinstance(text, str) and text[:2] == "--" and text[2:].isidentifier()
        }

    def _parameters(self, path: str, depth: int) -> Parameters | None:
        found = self._class(path, depth)
        if found is None:
            return None
        module, node = found
        dataclass_ = _is_dataclass(node)
        if _method(node, "__new__") or any(k.arg != "metaclass" for k in node.keywords):
            return None
        if (node.decorator_list and not dataclass_) or not all(map(_is_abc_meta, node.keywords)):
            return None
        init = _method(node, "__init__")
        if init is not None:
            return _of_function(init, module)
        inherited = self._inherited(node, module, depth)
        if inherited is None or not dataclass_:
            return inherited
        return {**inherited, **_of_fields(node, module)}

    def _inherited(self, node: ast.ClassDef, module: str, depth: int) -> Parameters | None:
        paths = [self._path(base, module) for base in node.bases]
        bases = [path for path in paths if path not in _NOTHING_OF_THEIR_OWN]
        if not bases:
            return {}
        if len(bases) > 1 or bases[0] is None or depth == 0:
            return None
        return self._parameters(bases[0], depth - 1)

    def _class(self, path: str, depth: int) -> tuple[str, ast.ClassDef] | None:
        """The class statement, and the module where it is; re-exports are followed."""
        module, _, name = path.rpartition(".")
        bound = list(_binding(self._module(module), name)) if module else []
        if len(bound) != 1 or depth == 0:
            return None
        if isinstance(bound[0], ast.ClassDef):
            return module, bound[0]
        origin = self._imported(bound[0], name, module)
        return None if origin is None else self._class(origin, depth - 1)

    def _path(self, expression: ast.expr, module: str) -> str | None:
        """The dotted path that a name in a module stands for."""
        if isinstance(expression, ast.Subscript):
            return self._path(expression.value, module)
        if isinstance(expression, ast.Attribute):
            owner = self._path(expression.value, module)
            return None if owner is None else f"{owner}.{expression.attr}"
        if not isinstance(expression, ast.Name):
            return None
        bound = list(_binding(self._module(module), expression.id))
        if not bound and expression.id == "object":
            return "object"
        if len(bound) != 1:
            return None
        if isinstance(bound[0], ast.ClassDef):
            return f"{module}.{expression.id}"
        return self._imported(bound[0], expression.id, module)

    def _imported(self, node: ast.AST, name: str, module: str) -> str | None:
        if isinstance(node, ast.Import):
            alias = next(a for a in node.names if _bound_name(a) == name)
            return alias.name if alias.asname else name
        if not isinstance(node, ast.ImportFrom):
            return None
        alias = next(a for a in node.names if _bound_name(a) == name)
        if node.level == 0:
            return f"{node.module}.{alias.name}"
        file = _file(module)
        package = (
            module.split(".") if file is not None and file.stem == "__init__" else module.split(".")[:-1]
        )
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else []), alias.name])

    def _module(self, module: str) -> ast.Module | None:
        if module not in self._modules:
            file = _file(module)
            try:
                self._modules[module] = None if file is None else ast.parse(file.read_bytes())
            except (OSError, SyntaxError, ValueError):
                self._modules[module] = None
        return self._modules[module]


def _file(module: str) -> Path | None:
    """Where the source of a module is; its packages are found as an import would, but not run."""
    top, *inner = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not inner:
        return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None
    for folder in folders:
        place = folder.joinpath(*inner)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file
    return None


def _binding(tree: ast.Module | None, name: str) -> Iterator[ast.AST]:
    """What may give a module's name its meaning, also inside of `if`, `try` and the like."""
    waiting: list[ast.AST] = [] if tree is None else [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = any(_bound_name(alias) == name for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound = node.name == name
        else:
            bound = isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
            waiting += ast.iter_child_nodes(node)
        if bound:
            yield node


def _bound_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The last method of the name; a class may define none."""
    found = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name]
    return found[-1] if found else None


def _of_function(function: ast.FunctionDef, module: str) -> Parameters | None:
    arguments = function.args
    if arguments.kwarg is not None:
        return None
    named = [*[*arguments.posonlyargs, *arguments.args][1:], *arguments.kwonlyargs]
    return {argument.arg: Parameter(argument.annotation, module) for argument in named}


def _of_fields(node: ast.ClassDef, module: str) -> Parameters:
    return {
        item.target.id: Parameter(item.annotation, module)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _is_dataclass(node: ast.ClassDef) -> bool:
    """Whether it is decorated as a dataclass, and by nothing else."""
    plain = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    names = [
        d.attr if isinstance(d, ast.Attribute) else d.id if isinstance(d, ast.Name) else "" for d in plain
    ]
    return names == ["dataclass"]


def _is_abc_meta(keyword: ast.keyword) -> bool:
    return isinstance(keyword.value, ast.Name) and keyword.value.id == "ABCMeta"


def _alternatives(annotation: ast.expr | None) -> Iterator[ast.expr]:
    """What `A | B` offers."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        yield from _alternatives(annotation.left)
        yield from _alternatives(annotation.right)
    elif annotation is not None:
        yield annotation


def _is_none(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Constant) and annotation.value is None
