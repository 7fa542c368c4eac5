"""Data sets fetched, from a server of our own, by several runs at once."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from torchvision import datasets

from ncscope.data.catalogue import load
from tests.data.on_disk import md5, write_idx

RUNS = 3


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """How often each file of MNIST was asked for; the server takes its time."""
    written = write_idx(datasets.MNIST, tmp_path / "there", packed=True)
    files = tmp_path / "there" / "MNIST" / "raw"
    counts = Counter()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            counts[self.path] += 1
            time.sleep(0.05)
            super().do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=files)) as server:
        monkeypatch.setattr(datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        sums = [(name, md5(files / name)) for name, _ in datasets.MNIST.resources]
        monkeypatch.setattr(datasets.MNIST, "resources", sums)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(server.serve_forever, poll_interval=0.01)
            yield counts, written
            server.shutdown()


def test_runs_that_start_at_once_fetch_what_one_does(asked, tmp_path):
    counts, written = asked
    load("mnist", tmp_path / "alone", download=True)
    alone = counts.copy()
    assert len(alone) == 4
    folders = [tmp_path / "data"] * RUNS
    with ThreadPoolExecutor(RUNS) as runs:
        found = list(runs.map(partial(load, "mnist", download=True), folders))
    assert counts - alone == alone
    assert [data.train.labels.tolist() for data in found] == [written.train[1].tolist()] * RUNS
