"""A process that can't start another one and can't open a file for writing: the kernel kills it if it tries.

A seccomp filter sees what an audit hook of Python doesn't: the system calls of C++ code. x86-64 only, as the kernels.
"""

import ctypes
import errno
import os

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X86_64 = 0xC000003E
_OPEN, _CREAT, _CLONE, _FORK, _VFORK, _EXECVE, _OPENAT, _EXECVEAT, _CLONE3 = 2, 85, 56, 57, 58, 59, 257, 322, 435
_MKDIR, _RENAME, _LINK, _SYMLINK, _MKDIRAT = 83, 82, 86, 88, 258
_CLONE_THREAD = 0x10000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


def _if_argument_has(number, argument, bits, yes, no):
    """For system call `number`: `yes` if the argument has one of the bits, else `no`."""
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
        (_JUMP_ANY_BIT, 0, 1, bits),
        (_RETURN, 0, 0, yes),
        (_RETURN, 0, 0, no),
    ]


def enter():
    """From here on the process can only compute and read."""
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, _X86_64), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    for number in (_CREAT, _FORK, _VFORK, _EXECVE, _EXECVEAT, _MKDIR, _MKDIRAT, _RENAME, _LINK, _SYMLINK):
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KILL)]
    # clone3 has its flags in memory, where a filter can't look: without it the C library uses clone
    code += [(_JUMP_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code += _if_argument_has(_CLONE, 0, _CLONE_THREAD, _ALLOW, _KILL)
    code += _if_argument_has(_OPEN, 1, _WRITING, _KILL, _ALLOW)
    code += _if_argument_has(_OPENAT, 2, _WRITING, _KILL, _ALLOW)
    code += [(_RETURN, 0, 0, _ALLOW)]
    instructions = (_Instruction * len(code))(*code)
    libc = ctypes.CDLL(None, use_errno=True)
    pr_set_no_new_privs, pr_set_seccomp, filter_mode = 38, 22, 2
    if libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0) or libc.prctl(
        pr_set_seccomp, filter_mode, ctypes.byref(_Program(len(code), instructions)), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter was refused")
