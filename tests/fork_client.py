"""Asks a fork server for a program, as a command in a shell: `python -IS fork_client.py SOCKET SCRIPT ARGUMENTS`.

The program has this process's folder, environment and standard streams. This module imports little, so that it starts
in some 20 ms.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIZE = 4
"""Bytes of a number."""


def send_order(
    server: socket.socket, words: Sequence[object], cwd: str, env: Mapping[str, str], streams: tuple[int, int, int]
) -> socket.socket:
    """Order `python WORDS`. The server sends the program's pid, and at its end its exit code, to the socket returned.

    An order is one message, so those of two processes do not mix.
    """
    ours, its = socket.socketpair()
    order = json.dumps({"words": list(map(str, words)), "cwd": cwd, "env": dict(env)}).encode()
    files = array.array("i", (its.fileno(), *streams)).tobytes()
    with its:
        message = len(order).to_bytes(SIZE, "big") + order
        sent = server.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        server.sendall(message[sent:])
    return ours


def receive(source: socket.socket, size: int) -> bytes:
    """Read so many bytes. Raises `EOFError` if the server has ended."""
    found = b""
    while len(found) < size:
        piece = source.recv(size - len(found))
        if not piece:
            raise EOFError("the fork server has ended")
        found += piece
    return found


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as server:
        control = send_order(server, sys.argv[2:], os.getcwd(), os.environ, (0, 1, 2))
    for stream in (0, 1, 2):
        os.close(stream)  # a reader sees the end when the program has closed its own
    receive(control, SIZE)
    code = int.from_bytes(receive(control, SIZE), "big", signed=True)
    os._exit(code if code >= 0 else 128 - code)
