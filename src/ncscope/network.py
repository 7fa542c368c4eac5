"""Test of the way to a server, made once and at once: libraries try for a minute."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ncscope.errors import InputError
from ncscope.files import is_folder

_PORTS = {"http": 80, "https": 443, "socks4": 1080, "socks5": 1080, "socks5h": 1080}
_SECONDS = 3.0
"""Longest wait for an answer to the first packet."""

_STALL = 30.0
"""Longest wait for the next bytes of a download."""


def find_obstacle(address: str) -> str:
    """Return why a server cannot be reached; empty if it answers.

    If the environment names a proxy for the server, the proxy is asked in its place: behind a
    proxy the server itself need not be reachable, and what the proxy reaches is not known.
    """
    parts = urlsplit(address)
    host, through = parts.hostname or "", ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(host):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, through = parts.hostname or "", "the proxy "
    try:
        port = parts.port or _PORTS.get(parts.scheme, 443)
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except (OSError, ValueError) as error:  # ValueError: a port or a name that is none
        reason = getattr(error, "strerror", None) or str(error)
        return f"no answer from {through}{host} ({reason})"
    return ""


def refuse_connection(address: str, purpose: str, obstacle: str, fix: str) -> InputError:
    """Return the error for a server that cannot be reached.

    Args:
        address: Address on the server.
        purpose: Object that was to be fetched.
        obstacle: Why the server cannot be reached, as `find_obstacle` says it.
        fix: Remedy for a machine without a network.
    """
    return InputError(
        expected=f"a connection to {urlsplit(address).hostname} for {purpose}",
        found=obstacle,
        fix=f"connect, or set HTTPS_PROXY if there is a proxy; without a network, {fix}",
    )


@contextmanager
def limit_stalls() -> Iterator[None]:
    """End downloads of the standard library in which nothing comes for half a minute."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_STALL)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def find_hub() -> str:
    """Return the address of the Hugging Face Hub, or of the mirror that HF_ENDPOINT names.

    Raises:
        ModuleNotFoundError: If huggingface_hub is not installed.
    """
    return str(import_module("huggingface_hub.constants").ENDPOINT)


def is_on_disk(name: str, *, download: bool) -> bool:
    """Return whether a model of Hugging Face is to be read from disk: a folder, or the hub's cache.

    Args:
        name: Folder, or name on the hub.
        download: The hub may be asked, which it is if it answers.

    Raises:
        InputError: If the model is not on disk, and the hub may not be asked or does not answer.
        ModuleNotFoundError: If huggingface_hub is not installed.
    """
    if is_folder(Path(name)):
        return True
    obstacle = find_obstacle(find_hub()) if download else "no --download"
    if not obstacle:
        return False
    try:
        config = import_module("huggingface_hub").try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name on the hub
        config = None
    if isinstance(config, str):
        return True
    folder = "name a folder that save_pretrained wrote"
    if download:
        raise refuse_connection(find_hub(), f"hf:{name}", obstacle, folder)
    raise InputError(
        expected=f"an image classifier under hf:{name}",
        found="no such folder, and no such model in the cache",
        fix=f"{folder}, or pass --download",
    )


@contextmanager
def use_hub_cache() -> Iterator[None]:
    """Let huggingface_hub read its cache alone: it asks the network for some files regardless."""
    constants: Any = import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
        # Versions before 1.0 keep the session, which would refuse all later requests.
        getattr(import_module("huggingface_hub.utils"), "reset_sessions", lambda: None)()
