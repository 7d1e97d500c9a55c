"""The system calls of confined processes, as seccomp filter programs. Runs in the workers: stdlib only.

Code of the process sandbox may do what computing needs: memory, locks between existing threads, clocks, reading and
writing of open files. Every other call fails with EPERM, including calls that the filter does not know. The filter of
shell commands, which run any program, names what it refuses. The numbers come from linux/unistd.h.
"""

from __future__ import annotations

import struct

# A call, its number on x86_64, and on aarch64 ("-": it does not exist there). Calls of one purpose stand together.
_ALLOWED = """
read 0 63, write 1 64, writev 20 66, close 3 57, fstat 5 80, lseek 8 62
munmap 11 215, brk 12 214, mremap 25 216, madvise 28 233
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, sigaltstack 131 132, restart_syscall 219 128
sched_yield 24 124, futex 202 98, set_robust_list 273 99, rseq 334 293
nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
time 201 -, getrusage 98 165
getpid 39 172, gettid 186 178, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177
exit 60 93, exit_group 231 94
"""
_REFUSED = """
socket 41 198
io_uring_setup 425 425, clone3 435 435, openat2 437 437
unshare 272 97, setns 308 268
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429, fsopen 430 430,
fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440, pidfd_getfd 438 438,
kcmp 312 272
bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, fanotify_init 300 262
add_key 248 217, request_key 249 218, keyctl 250 219
name_to_handle_at 303 264, open_by_handle_at 304 265
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
reboot 169 142
swapon 167 224, swapoff 168 225, syslog 103 116, acct 163 89, quotactl 179 60, quotactl_fd 443 443, vhangup 153 58
settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266
iopl 172 -, ioperm 173 -, modify_ldt 154 -
uselib 134 -, lookup_dcookie 212 18
"""


def _read_table(text: str) -> dict[str, tuple[int | None, int | None]]:
    calls = [call.split() for line in text.split("\n") for call in line.split(",") if call.strip()]
    return {name: (None if x86 == "-" else int(x86), None if arm == "-" else int(arm)) for name, x86, arm in calls}


ALLOWED = _read_table(_ALLOWED)
NOT_EXECUTABLE: dict[str, tuple[int, int]] = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed unless the mapped memory may be executed."""

REFUSED = _read_table(_REFUSED)
"""Calls that a shell command may not make: network, namespaces, mounts, other processes, and the kernel's settings.
`io_uring_setup` makes sockets, too."""
IN_MEMORY = ("clone3", "openat2")
"""Their arguments are in memory, where a filter cannot see them. Programs fall back to clone and openat."""
NEWER = 463
"""Calls from this number on are newer than this list, and do not exist for a command (ENOSYS)."""
_NEW_NAMESPACES, _SET_ID = 0x7E020000, 0o6000  # linux/sched.h; setuid and setgid
REFUSED_ARGUMENTS: tuple[tuple[tuple[int | None, int | None], int, int, int], ...] = (
    ((56, 220), 0, _NEW_NAMESPACES, 0),  # clone
    ((53, 199), 0, ~1, 0),  # socketpair: of no other kind than AF_UNIX
    ((53, 199), 1, 2, 0),  # socketpair: of a datagram or raw socket, which could send to others; a stream cannot
    ((16, 29), 1, ~0, 0x5412),  # ioctl TIOCSTI: it types into a terminal
    ((16, 29), 1, ~0, 0x541C),  # ioctl TIOCLINUX
    # A program that runs as its owner, also for other users of the machine: chmod, fchmod, fchmodat, fchmodat2, creat,
    # open, openat, mknod, mknodat.
    ((90, None), 1, _SET_ID, 0),
    ((91, 52), 1, _SET_ID, 0),
    ((268, 53), 2, _SET_ID, 0),
    ((452, 452), 2, _SET_ID, 0),
    ((85, None), 1, _SET_ID, 0),
    ((2, None), 2, _SET_ID, 0),
    ((257, 56), 3, _SET_ID, 0),
    ((133, None), 1, _SET_ID, 0),
    ((259, 33), 2, _SET_ID, 0),
)
"""Calls whose argument decides: numbers, argument (from 0), mask, and the refused value (0: any bit of the mask)."""

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The kernel's name of an architecture (linux/audit.h), and its column above."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06  # linux/bpf_common.h
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 1  # linux/seccomp.h; 1 is EPERM
_MISSING = 0x00050000 | 38  # ENOSYS
_NUMBER, _ARCH, _ARGUMENT_1, _ARGUMENT_3 = 0, 4, 16, 16 + 8 * 2  # struct seccomp_data, little endian
_PROT_EXEC = 4

_Step = tuple[int, int, int, int]
"""One instruction: code, jump if true, jump if false, operand."""


def program(machine: str) -> bytes:
    """Return the filter for an architecture, as an array of `struct sock_filter`. Raises `KeyError` if unknown."""
    column = MACHINES[machine][1]
    steps = _first_steps(machine)
    for numbers in ALLOWED.values():
        number = numbers[column]
        if number is not None:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for numbers in NOT_EXECUTABLE.values():
        steps += [
            (_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, _ARGUMENT_3),
            (_ANY_OF, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    steps.append((_RETURN, 0, 0, _REFUSE))
    return _pack(steps)


def command_program(machine: str) -> bytes:
    """Return the filter for shell commands on an architecture. Raises `KeyError` if unknown."""
    column = MACHINES[machine][1]
    steps = [*_first_steps(machine), (_AT_LEAST, 0, 1, NEWER), (_RETURN, 0, 0, _MISSING)]
    for name, numbers in REFUSED.items():
        if (number := numbers[column]) is not None:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _MISSING if name in IN_MEMORY else _REFUSE)]
    for numbers, argument, mask, refused in REFUSED_ARGUMENTS:
        mask &= 0xFFFFFFFF
        if (number := numbers[column]) is None:
            continue
        steps += [
            (_EQUAL, 0, 5, number),
            (_LOAD, 0, 0, _ARGUMENT_1 + 8 * argument),
            (_AND, 0, 0, mask),
            (_EQUAL, 0, 1, refused) if refused else (_ANY_OF, 0, 1, mask),
            (_RETURN, 0, 0, _REFUSE),
            (_LOAD, 0, 0, _NUMBER),
        ]
    return _pack([*steps, (_RETURN, 0, 0, _ALLOW)])


def _first_steps(machine: str) -> list[_Step]:
    """Kill a process that uses the calls of another architecture, then load the number of the call."""
    arch, _ = MACHINES[machine]
    steps: list[_Step] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":  # x32 calls have numbers from here on
        steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]
    return steps


def _pack(steps: list[_Step]) -> bytes:
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
