"""The special tokens of models: texts that an endpoint reads as control tokens, even in the content of a message.

A result that contains `<|im_end|>` could end its message and begin a forged one. So a run removes its own models'
special tokens from data. An embedded model's tokens are read from its file. Those of a server are set in plait.toml
(`special_tokens` of an endpoint), or follow from the family in the model's name.

If the chat template of a file has a form for tools, its tags around calls and results count as special tokens.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from plait.user_files import open_file

CHATML: Final = ("<|endoftext|>", "<|im_end|>", "<|im_start|>")
LLAMA_3: Final = (
    *("<|begin_of_text|>", "<|end_header_id|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    "<|start_header_id|>",
)
_QWEN_2_5 = """
</tool_call> </tool_response> </tools> <tool_call> <tool_response> <tools> <|box_end|> <|box_start|> <|endoftext|>
<|file_sep|> <|fim_middle|> <|fim_pad|> <|fim_prefix|> <|fim_suffix|> <|im_end|> <|im_start|> <|image_pad|>
<|object_ref_end|> <|object_ref_start|> <|quad_end|> <|quad_start|> <|repo_name|> <|video_pad|> <|vision_end|>
<|vision_pad|> <|vision_start|>
"""
QWEN_2_5: Final = tuple(_QWEN_2_5.split())
_SMOLLM_2 = """
<empty_output> <file_sep> <filename> <gh_stars> <issue_closed> <issue_comment> <issue_start> <jupyter_code>
<jupyter_output> <jupyter_script> <jupyter_start> <jupyter_text> <repo_name> <reponame> <|endoftext|> <|im_end|>
<|im_start|>
"""
SMOLLM_2: Final = tuple(_SMOLLM_2.split())
GEMMA: Final = ("<bos>", "<end_of_turn>", "<eos>", "<start_of_turn>")

_FAMILIES = (
    (re.compile(r"qwen-?[23]|smollm-?[23]", re.I), CHATML),
    (re.compile(r"llama-?3", re.I), LLAMA_3),
    (re.compile(r"gemma(?!-?[4-9](?!b))", re.I), GEMMA),
)

_CONTROL, _USER_DEFINED = 3, 4
_TOKENS, _TYPES, _TEMPLATE = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.chat_template"
_TOOLS, _TAG = re.compile(r"\btools\b"), re.compile(r"</?\w{1,40}>")
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""The bytes of each type of number in a GGUF file."""
_TEXT, _LIST = 8, 9
_NEEDED: dict[str, type] = {_TOKENS: list, _TYPES: bytes, _TEMPLATE: str}
"""The entries that are needed, as `_value` returns them."""
_MOST = 1 << 24
"""Maximum entries of a list, and bytes of a text, that are accepted."""


def tokens_of_family(name: str) -> tuple[str, ...]:
    """Return the special tokens of the family in a model's name; none for an unknown one."""
    return next((tokens for pattern, tokens in _FAMILIES if pattern.search(name)), ())


def tokens_of_file(path: Path) -> tuple[str, ...]:
    """Return the special tokens of a GGUF file's vocabulary; none if it is unreadable (loading says why)."""
    return _read_file(path)[0]


def has_form_for_tools(path: Path) -> bool:
    """Return whether the chat template of a GGUF file has a form for tools; False if it cannot be read."""
    return _read_file(path)[1]


def _read_file(path: Path) -> tuple[tuple[str, ...], bool]:
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError, struct.error):
        return (), False


@lru_cache(maxsize=16)
def _read(path: Path, changed: int, size: int) -> tuple[tuple[str, ...], bool]:
    # Control tokens, and user-defined ones that the chat template writes. Others (`<h1>`, spaces) are ordinary text.
    with open_file(path) as file:
        found = _metadata(file)
    tokens, types, template = found.get(_TOKENS, []), found.get(_TYPES, b""), found.get(_TEMPLATE, "")
    kinds = struct.unpack(f"<{len(types) // 4}i", types)
    special = {token for token, kind in zip(tokens, kinds, strict=False) if kind == _CONTROL}
    own = (token for token, kind in zip(tokens, kinds, strict=False) if kind == _USER_DEFINED and token.strip())
    special.update(token for token in own if token in template)
    if has_tools := bool(_TOOLS.search(template)):
        special.update(_TAG.findall(template))
    return tuple(sorted(token for token in special if len(token) > 1)), has_tools


def _metadata(file: BinaryIO) -> dict[str, Any]:
    """Return the three needed entries of a GGUF file's head. Raises `ValueError` for another file."""
    if file.read(4) != b"GGUF":
        raise ValueError("not a GGUF file")
    version, _, entries = _numbers(file, "<IQQ")
    if version < 2:
        raise ValueError("a GGUF file of version 1")
    found: dict[str, Any] = {}
    for _ in range(min(entries, _MOST)):
        key = _text(file)
        (kind,) = _numbers(file, "<I")
        value = _value(file, kind)
        if isinstance(value, _NEEDED.get(key, ())):
            found[key] = value
        if len(found) == len(_NEEDED):
            break
    return found


def _value(file: BinaryIO, kind: int) -> str | bytes | list[Any] | None:
    """Read a value: a text, a list of texts, or the bytes of numbers. None for a list of lists."""
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        return _bytes(file, _size_of(kind))
    inner, count = _numbers(file, "<IQ")
    if count > _MOST:
        raise ValueError("a list too long")
    if inner not in (_TEXT, _LIST):
        return _bytes(file, _size_of(inner) * count)
    values = [_value(file, inner) for _ in range(count)]
    return values if inner == _TEXT else None


def _size_of(kind: int) -> int:
    if kind not in _SIZES:
        raise ValueError(f"a value of the unknown type {kind}")
    return _SIZES[kind]


def _numbers(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, _bytes(file, struct.calcsize(form)))


def _text(file: BinaryIO) -> str:
    (size,) = _numbers(file, "<Q")
    if size > _MOST:
        raise ValueError("a text too long")
    return _bytes(file, size).decode("utf-8", "replace")


def _bytes(file: BinaryIO, size: int) -> bytes:
    found = file.read(size)
    if len(found) != size:
        raise ValueError("the file ends within its head")
    return found
