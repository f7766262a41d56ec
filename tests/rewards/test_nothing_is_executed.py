"""No grader runs what it grades, whatever it is written as: not here, not in a worker process.

Programs run, in their sandbox: see test_launcher.
"""

import ast
import asyncio
import socket
import sys
import threading

import pytest

from trinity.rewards.judge import means_the_same
from trinity.rewards.rewards import KINDS, Rewards

PAYLOADS = {
    "python": "__import__('os').system('touch {path}')",
    "subclasses": "().__class__.__base__.__subclasses__()[-1].__init__.__globals__['os'].system('{path}')",
    "lambda": "(lambda: open('{path}', 'w').close())()",
    "sympy": "Symbol('x', commutative=__import__('pathlib').Path('{path}').touch())",
    "shell": "$(touch {path}); `touch {path}`; | touch {path}",
    "latex": r"\immediate\write18{{touch {path}}}\input{{|touch {path}}}\openout1={path}",
    "format": "{{0.__class__.__init__.__globals__}} %(path)s",
    "template": "{{{{ ''.__class__.__mro__ }}}} ${{path}} <%= system('touch {path}') %>",
    "pickle": "cposix\nsystem\n(S'touch {path}'\ntR.",
    "yaml": "!!python/object/apply:os.system ['touch {path}']",
    "connect": "__import__('socket').create_connection(('127.0.0.1', {port}))",
}
WRAPPINGS = (
    "{}", r"\boxed{{{}}}", r"\boxed{{\text{{{}}}}}", r"\boxed{{\frac{{1}}{{{}}}}}", "The answer is {}",
    r"\boxed{{\operatorname{{{}}}}}", "Answer: {}", '{{"reasoning": "", "answer": {}}}', "x = {}",
    '{{"answer": "{}"}}', "<answer>{}</answer>", "```python\n{}\n```", "VERDICT: {}", r"\[ {} \]",
    r"\boxed{{Integer({})}}", r"\boxed{{Float('{}')}}",
)  # fmt: skip
REFERENCES = {"choice": "B", "json_number": "5", "json_literal": "[1]", "text": "x+1", "exact": "x"}


@pytest.fixture(scope="module")
def heard():
    """What this process compiles, starts or connects to, as the interpreter itself reports it."""
    events = []
    active = threading.Event()
    watched = ("exec", "compile", "os.system", "subprocess.Popen", "socket.connect", "pickle.find_class")

    def hook(event, arguments):
        if active.is_set() and event in watched:
            events.append((event, arguments))

    sys.addaudithook(hook)
    yield events, active
    active.clear()


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"code"}))
def test_no_output_or_reference_is_executed(rewards, question, heard, tmp_path, kind):
    events, active = heard
    path = tmp_path / "executed"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        payloads = [text.format(path=path, port=server.getsockname()[1]) for text in PAYLOADS.values()]

        async def all_of_them():
            await rewards.grade(question("math", r"\sqrt{2}"), r"\boxed{\sqrt{8}}")  # the workers are up
            active.set()
            for payload in payloads:
                task = question(kind, REFERENCES.get(kind, r"\sqrt{2}"), options=(payload, "b", "c", "d"))
                await asyncio.gather(*(rewards.grade(task, form.format(payload)) for form in WRAPPINGS))
            active.clear()

        events.clear()
        asyncio.run(all_of_them())
        for payload in payloads:
            try:
                rewards.check(question(kind, payload, options=(payload,)))
            except Exception as error:
                assert type(error).__name__ == "UserError"
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not path.exists()
    ran = [event for event in events if not _is_harmless(*event)]
    assert not ran, ran[:3]


def _is_harmless(event, arguments):
    """`ast.literal_eval` compiles, to a tree that is not run; the pool's own messages are pickled."""
    return event == "compile" or (event == "pickle.find_class" and arguments[0].startswith("pebble."))


def test_the_hook_hears_an_execution(heard):
    events, active = heard
    events.clear()
    active.set()
    exec(compile("1", "<test>", "exec"))
    active.clear()
    assert {event for event, _ in events} == {"compile", "exec"}
    assert ast.literal_eval("[1]") == [1]


async def test_a_judge_gets_payloads_as_text():
    asked = []

    async def ask(rules, texts):
        asked.append(texts)
        return "VERDICT: DIFFERENT"

    for payload in PAYLOADS.values():
        await means_the_same(ask, "{0.__class__} %s", "r", payload)
        assert payload in asked[-1]


async def test_a_program_is_not_run_outside_the_sandbox(question, tmp_path, monkeypatch):
    """With no sandbox to be had, a program is refused rather than run."""
    monkeypatch.setenv("PATH", "/nowhere")
    path = tmp_path / "executed"
    reference = '{"tests": [{"input": "", "output": "1", "testtype": "stdin"}]}'
    with Rewards() as rewards, pytest.raises(Exception, match="sandbox does not start"):
        await rewards.grade(
            question("code", reference), f"```python\nopen({str(path)!r}, 'w')\nprint(1)\n```"
        )
    assert not path.exists()
