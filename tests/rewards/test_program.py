import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.rewards.program import extract_program, read_fences


def block(code, label="python"):
    return f"```{label}\n{code}\n```"


@pytest.mark.parametrize(
    ("output", "program"),
    [
        (block("a = 1"), "a = 1"),
        (f"First {block('a = 1')} then\n{block('a = 2')}\nDone.", "a = 2"),
        (f"{block('a = 1')}\nOutput:\n{block('5', '')}", "a = 1"),
        (f"{block('a = 1')}\nIn C++:\n{block('int a;', 'cpp')}", "a = 1"),
        (f"{block('a = 1')}\n{block('')}", "a = 1"),
        (block("a = 1", "Python"), "a = 1"),
        (block("a = 1", "py"), "a = 1"),
        (block("a = 1", "python3"), "a = 1"),
        (block("a = 1", 'python title="a.py"'), "a = 1"),
        (block("a = 1", " python "), "a = 1"),
        ("~~~python\na = 1\n~~~", "a = 1"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("```python\r\na = 1\r\nb = 2\r\n```\r\n", "a = 1\nb = 2"),
        ("1. Do:\n   ```python\n   if a:\n       b()\n   ```\n", "if a:\n    b()"),
        ("Here: ```python\na = 1\n```", "a = 1"),
        (block("a = '\x0c\u2028'"), "a = '\x0c\u2028'"),
        ("```python\n    return 1\n```", "    return 1"),
        ("```python\na = 1", "a = 1"),
        (f"{block('a = 1')}\n```python\na = 2", "a = 1"),
        ("```python\na = \n\nSorry, again:\n```python\na = 2\n```", "a = 2"),
        (block("a = 1", ""), "a = 1"),
        (f"{block('print(5)', '')}\nprints\n{block('5', '')}", "print(5)"),
        ("a = 1\nprint(a)\n", "a = 1\nprint(a)"),
        ("    return a", "    return a"),
        (f"<think>{block('a = 1')}</think>{block('a = 2')}", "a = 2"),
        (f"<think>{block('a = 1')}", None),
        (block("int a;", "cpp"), None),
        ("", None),
        (" \n\n", None),
    ],
)
def test_the_program_of_an_output(output, program):
    assert extract_program(output) == program


def test_an_example_of_use_is_not_the_program():
    output = f"{block('def f(): return 1')}\nUse it:\n{block('print(f())')}"
    assert extract_program(output, ["f"]) == "def f(): return 1"
    assert extract_program(output, ["g"]) == extract_program(output) == "print(f())"


def test_the_last_of_several_definitions_counts():
    output = block("def f(): return 1") + "\nBetter:\n" + block("def f(): return 2")
    assert extract_program(output, ["f"]) == "def f(): return 2"


@pytest.mark.parametrize("part", ["```", "```python\n", "~", "`", "x = ", "\n", "    ", "def "])
def test_a_megabyte_of_anything_is_quick(part):
    started = time.process_time()
    extract_program(part * (1_000_000 // len(part)), ["f"])
    assert time.process_time() - started < 2


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab=\n `", max_size=60).filter(lambda code: "```" not in code and code.strip()))
def test_what_is_fenced_comes_back(code):
    assert extract_program(f"Text\n```python\n{code}\n```\nmore") == code


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="`~python \n=a", max_size=80))
def test_no_output_raises(output):
    extract_program(output)
    read_fences(output)
