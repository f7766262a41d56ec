"""The system calls that a program does not get.

Every pointer-free rule that is needed can be said as "this call" or "this call unless its first argument
says otherwise", so the filter is a flat list of comparisons. It works without privileges, and in both kinds
of sandbox.
"""

import ctypes
import errno
import os
import platform
import signal
import struct

_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_THREAD, _CLONE_NEWUSER = 0x10000, 0x10000000
_X32 = 0x40000000
_SET_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS, _FILTER = 1, 4, 22, 38, 2

# (x86-64, AArch64) of Linux's syscall tables; None where the machine has no such call.
_SELF_ONLY = {"kill": (62, 129), "tgkill": (234, 131)}
_NEVER = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218),
}  # fmt: skip
# Processes of its own, signals to others, shared memory that no limit counts, sockets.
_NOT_ALONE = {
    "fork": (57, None), "vfork": (58, None), "setsid": (112, 157), "setpgid": (109, 154),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "memfd_create": (319, 279), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "socket": (41, 198),
}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), 435
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def shelter() -> None:
    """This process ends with its parent; no other of the same user can trace it or read its memory."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def confine(alone: bool) -> None:
    """Install the filter for this process and all its threads, for good.

    Args:
        alone: whether the process stays alone: then it starts threads but no processes, signals only itself
            and opens no socket.

    Raises:
        OSError: if the machine is neither x86-64 nor AArch64, or its kernel has no filters.
    """
    program = filter_program(platform.machine(), os.getpid(), alone)
    libc = ctypes.CDLL(None, use_errno=True)
    described = _Program(len(program) // 8, program)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _SET_SECCOMP, _FILTER, ctypes.byref(described), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the kernel refuses a filter of system calls")


def filter_program(machine: str, process: int, alone: bool) -> bytes:
    """The filter as classic BPF. Raises OSError for an unknown machine."""
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"there is no filter of system calls for {machine}")
    column, architecture = _MACHINES[machine]
    refuse, missing = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        # clone3 hides its flags behind a pointer; without it, libraries fall back to clone.
        *_when(_IF_EQUAL, _CLONE3, missing),
    ]
    if machine == "x86_64":
        program += _when(_IF_AT_LEAST, _X32, missing)
    for numbers in (_NEVER | _NOT_ALONE if alone else _NEVER).values():
        number = numbers[column]
        if number is not None:
            program += _when(_IF_EQUAL, number, refuse)
    if alone:
        program += _unless(_CLONE[column], (_IF_SET, _CLONE_THREAD), _ALLOW, refuse)
        for numbers in _SELF_ONLY.values():
            program += _unless(numbers[column], (_IF_EQUAL, process), _ALLOW, refuse)
    else:
        program += _unless(_CLONE[column], (_IF_SET, _CLONE_NEWUSER), refuse, _ALLOW)
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


_Instruction = tuple[int, int, int, int]


def _when(comparison: int, value: int, action: int) -> list[_Instruction]:
    return [(comparison, 0, 1, value), (_RETURN, 0, 0, action)]


def _unless(number: int, test: tuple[int, int], then: int, otherwise: int) -> list[_Instruction]:
    """For this call, look at the first argument."""
    comparison, value = test
    return [
        (_IF_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (comparison, 0, 1, value),
        (_RETURN, 0, 0, then),
        (_RETURN, 0, 0, otherwise),
    ]
