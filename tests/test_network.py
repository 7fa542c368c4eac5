"""Without a network the user learns so at once; a proxy is asked in place of the server."""

import socket
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from ncscope.errors import InputError
from ncscope.models.libraries import ModelRequest, open_model
from ncscope.network import find_obstacle, is_on_disk, limit_stalls


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[str]:
    """Address of a server that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """Address of a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    return f"127.0.0.1:{port}"


def test_a_server_that_answers_is_no_obstacle_and_a_closed_port_is_one(
    server: str, closed: str
) -> None:
    assert find_obstacle(f"http://{server}/a/b") == ""
    assert find_obstacle(f"http://{closed}/") == "no answer from 127.0.0.1 (Connection refused)"
    assert "no answer from nowhere.invalid (" in find_obstacle("https://nowhere.invalid/")
    assert "no answer from 127.0.0.1 (" in find_obstacle("http://127.0.0.1:99999/")


def test_a_proxy_is_asked_in_place_of_the_server(
    server: str, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"http://{server}")
    assert find_obstacle("https://nowhere.invalid/") == ""
    monkeypatch.setenv("https_proxy", closed)  # some write no http:// before it
    said = "no answer from the proxy 127.0.0.1 (Connection refused)"
    assert find_obstacle("https://nowhere.invalid/") == said
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert find_obstacle(f"https://{server}/") == ""
    monkeypatch.delenv("https_proxy")
    monkeypatch.setenv("all_proxy", f"socks5://{closed}")
    assert find_obstacle("https://nowhere.invalid/") == said


def test_a_model_of_the_hub_is_refused_at_once(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    constants = import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://{closed}")
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"connection to 127\.0\.0\.1 for hf:no/such, found no an"):
        is_on_disk("no/such", download=True)
    with pytest.raises(InputError, match=r"no such model in the cache; .* --download"):
        is_on_disk("no/such", download=False)
    with pytest.raises(InputError, match="no such folder"):
        is_on_disk("../no/such/folder", download=False)
    assert is_on_disk(str(tmp_path), download=False)
    assert time.perf_counter() - start < 5


def test_weights_of_a_library_are_refused_at_once(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("torchvision")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(import_module("huggingface_hub.constants"), "ENDPOINT", f"http://{closed}")
    monkeypatch.setenv("https_proxy", closed)
    monkeypatch.setenv("http_proxy", closed)
    for name in ("timm:test_vit", "torchvision:squeezenet1_1"):
        words = rf"for the weights of {name.partition(':')[2]}, found no answer from the proxy"
        start = time.perf_counter()
        with pytest.raises(InputError, match=words):
            open_model(ModelRequest(name, download=True))
        assert time.perf_counter() - start < 10


def test_stalls_are_limited_inside_alone() -> None:
    with limit_stalls():
        assert socket.getdefaulttimeout() == 30
    assert socket.getdefaulttimeout() is None
