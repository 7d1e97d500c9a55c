"""Server-sent events, bytes in, data out: however the stream was cut into pieces on its way.

Lines may end in LF, CRLF or CR, events may carry comments and other fields, the last blank line may be
missing. Splitting happens on bytes, so a character of several bytes may be cut anywhere.
"""

from __future__ import annotations

DONE = b"[DONE]"


class Events:
    """Feed pieces of a body, get the data of each event that is whole. One reader a stream.

    The data of an event that is named "error", or of a field `error:` (older llama.cpp), stands in `errors`.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = b""
        self._first = True
        self.errors: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of events completed by this piece."""
        buffer = self._rest + chunk if self._rest else chunk
        # A CR at the end may be half of a CRLF: it waits for the next piece.
        end = max(buffer.rfind(b"\n"), buffer.rfind(b"\r", 0, max(0, len(buffer) - 1))) + 1
        if end <= 0:
            self._rest = buffer
            return []
        self._rest = buffer[end:]
        return self._lines(buffer[:end])

    def close(self) -> list[bytes]:
        """The data of what was left over, when the stream has ended."""
        rest, self._rest = self._rest, b""
        return self._lines(rest + b"\n\n")

    def _lines(self, block: bytes) -> list[bytes]:
        if self._first:
            self._first = False
            block = block.removeprefix(b"\xef\xbb\xbf")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        out: list[bytes] = []
        lines = block.split(b"\n")
        del lines[-1]  # what follows the last line end: nothing
        for line in lines:
            if not line:
                self._dispatch(out)
                continue
            field, colon, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data" and colon:
                self._data.append(value)
            elif field == b"event":
                self._name = value
            elif field == b"error":
                self.errors.append(value)
        return out

    def _dispatch(self, out: list[bytes]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            (self.errors if self._name == b"error" else out).append(data.strip())
        self._data = []
        self._name = b""


def is_json(body: bytes) -> bool:
    """The body is one JSON value, not a stream of events. Told from its first byte: headers may lie."""
    return body.lstrip()[:1] in (b"{", b"[")
