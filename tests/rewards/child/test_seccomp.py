import struct

import pytest

from trinity.rewards.child.seccomp import filter_program

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(program, architecture, number, first_argument=0):
    """Run the filter as the kernel does."""
    fields = {0: number, 4: architecture, 16: first_argument}
    instructions = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, yes, no, value = instructions[at]
        if code == 0x06:
            return value
        if code == 0x20:
            accumulator = fields[value]
            at += 1
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}
            at += 1 + (yes if holds[code] else no)


@pytest.mark.parametrize(
    ("machine", "read", "socket", "ptrace", "clone", "kill"),
    [("x86_64", 0, 41, 101, 56, 62), ("aarch64", 63, 198, 117, 220, 129)],
)
def test_the_filter(machine, read, socket, ptrace, clone, kill):
    ours = MACHINES[machine]
    alone, loose = filter_program(machine, 77, True), filter_program(machine, 77, False)
    for program in (alone, loose):
        assert verdict(program, ours, read) == ALLOW
        assert verdict(program, ours, ptrace) == EPERM
        assert verdict(program, ours, 435) == ENOSYS
        assert verdict(program, 0x40000003, read) == KILL
        assert verdict(program, ours, clone, 0x10000000) == EPERM, "a namespace of users"
    assert (verdict(alone, ours, socket), verdict(loose, ours, socket)) == (EPERM, ALLOW)
    assert (verdict(alone, ours, clone, 17), verdict(loose, ours, clone, 17)) == (EPERM, ALLOW)
    assert verdict(alone, ours, clone, 0x10000 | 17) == ALLOW, "a thread"
    assert [verdict(alone, ours, kill, target) for target in (77, 1, 2**32 - 1)] == [ALLOW, EPERM, EPERM]


def test_the_other_interface_of_x86_64_is_closed():
    program = filter_program("x86_64", 77, False)
    assert verdict(program, MACHINES["x86_64"], 0x40000000 | 101) == ENOSYS


def test_an_unknown_machine_is_refused():
    with pytest.raises(OSError, match="riscv64"):
        filter_program("riscv64", 77, True)
