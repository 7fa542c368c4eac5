"""Joining a Ray cluster, on this machine or at an address."""

import os
import socket

from ncscope.errors import InputError, import_library

_SECONDS_TO_ANSWER = 10.0


def check_address(address: str) -> None:
    """Check that a server listens at the address: Ray would try to connect for minutes.

    Args:
        address: ``"local"``, ``"auto"``, ``"HOST:PORT"`` or ``"ray://HOST:PORT"``.

    Raises:
        InputError: If no server answers.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        if address in ("local", "auto"):
            return
        fix = "pass local, auto, HOST:PORT or ray://HOST:PORT"
        raise InputError(expected="the address of a Ray cluster", found=repr(address), fix=fix)
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        fix = "start one there with ray start --head, or pass local"
        found = f"none: {error}"
        raise InputError(expected=f"a Ray cluster at {address}", found=found, fix=fix) from error


def join_cluster(address: str, object_store: int | None = None) -> None:
    """Start Ray on this machine, or join a cluster.

    Args:
        address: ``"local"`` to start Ray here, else the address of a cluster.
        object_store: Bytes of Ray's object store on this machine; by default Ray chooses.

    Raises:
        InputError: If Ray is not installed, cannot start, or the cluster cannot be joined.
    """
    ray = import_library("ray")
    local = {
        # The cores that this process may use: Ray would take all that the machine has.
        "num_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "include_dashboard": False,
        "object_store_memory": object_store,
    }
    options = local if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # Ray raises many types, each with a reason in its message
        fix = (
            "see that it runs, with the same Python and Ray; if it was started with a token, set "
            "RAY_AUTH_MODE=token"
        )
        expected = "Ray to start" if options else f"a Ray cluster at {address}"
        found = f"{type(error).__name__}: {error}"[:300]
        raise InputError(expected=expected, found=found, fix=fix) from error
