"""Finds NIXL and starts an agent; the only module that imports NIXL.

It uses NIXL's bindings instead of NIXL's Python class, for two reasons. The class sets the delay of
the progress thread to 0, so every idle agent uses a whole core. And if a backend is missing, the
class only warns.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any, NamedTuple

from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError, TransportUnavailableError
from mx_artifacts.node.environment import environment, set_environment_default
from mx_artifacts.runtime.process import is_claimed

PROGRESS_DELAY_MICROSECONDS = 10_000
"""The progress thread wakes up on events, and without an event after this time."""


class LibraryDefault(NamedTuple):
    """A variable of a native library that we set if the user has not set it, and the reason."""

    name: str
    value: str
    reason: str


UCX_DEFAULTS = (
    LibraryDefault("UCX_LOG_FILE", "stderr", "stdout is for the output of the program"),
    LibraryDefault(
        "UCX_DEBUG_SIGNO",
        "0",
        "otherwise UCX uses SIGHUP for its own debugging, and the process does not end when its "
        "terminal closes",
    ),
)
UCX_DEFAULTS_OF_AGENTS = (
    LibraryDefault(
        "UCX_USE_MT_MUTEX",
        "y",
        "UCX's thread and the threads that read sleep while they wait for each other. Without it "
        "they spin, while the other thread copies megabytes or has no core",
    ),
    LibraryDefault(
        "UCX_KEEPALIVE_INTERVAL",
        "inf",
        "if a source was stopped for a while (SIGSTOP, a frozen container) and its targets left in "
        "that time, UCX would abort it when it continues. Our sessions detect lost peers instead",
    ),
    LibraryDefault(
        "UCX_TCP_CONN_NB",
        "y",
        "if a firewall drops the packets of a connection, connecting hangs for minutes. Without "
        "this value it holds the agent's lock, so every read from other sources hangs, too",
    ),
)
"""Set in the configuration of our own agents; other agents in the process keep theirs (ADR 21)."""
UCX_DEFAULTS_OF_PROGRAMS = (
    LibraryDefault(
        "UCX_MEM_EVENTS",
        "n",
        "UCX patches libc's code in memory to notice when memory is unmapped, which takes four "
        "fifths of an agent's start. Only its registration cache needs that; we register memory "
        "explicitly",
    ),
)

_LOADING = threading.Lock()


@dataclass(frozen=True)
class NixlAgent:
    """A started agent: NIXL's bindings module, its agent object, and the backend's handle."""

    nixl: Any
    agent: Any
    backend: int


def _cuda_major() -> int | None:
    """Return the CUDA version to pair with: of a loaded torch, else the newest the driver runs."""
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None)
    if version:
        return int(version.split(".")[0])
    number = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None  # no driver: every build of NIXL moves DRAM
    return number.value // 1000 if status == 0 else None


def set_library_defaults() -> None:
    """Set the variables that UCX reads when it is loaded, if the user has not set them.

    Starting an agent does this, too. If you start one in the background, call this before, so that
    the environment does not change while other threads read it.
    """
    _set(UCX_DEFAULTS)
    if is_claimed():
        _set(UCX_DEFAULTS_OF_PROGRAMS)


def _set(defaults: Iterable[LibraryDefault]) -> None:
    for each in defaults:
        set_environment_default(each.name, each.value)


def _load_bindings() -> Any:
    """Import NIXL's bindings, of the build that fits; `import nixl` would import torch to choose.

    Raises:
        TransportUnavailableError: none can be imported; it names each cause.
    """
    set_library_defaults()
    packages = ["nixl_cu13", "nixl_cu12", "nixl"]
    if (_cuda_major() or 13) < 13:
        packages = ["nixl_cu12", "nixl_cu13", "nixl"]
    causes = []
    for package in packages:
        bindings, cause = _import_bindings(package)
        if bindings is not None:
            return bindings
        causes.append(f"{package}: {cause}")
    raise TransportUnavailableError(f"NIXL cannot be imported ({'; '.join(causes)})")


def _import_bindings(package: str) -> tuple[Any, ImportError | None]:
    try:
        with _LOADING, _logging_kept():
            return _import_submodule(package, "_bindings"), None
    except ImportError as error:
        return None, error


def _import_submodule(package: str, submodule: str) -> ModuleType:
    """Import a module of `package` without the package's own code, where that has not run yet.

    NIXL's imports its Python class, and with that numpy, which takes three times as long.
    """
    name = f"{package}.{submodule}"
    spec = None
    if package not in sys.modules and name not in sys.modules:
        found = importlib.util.find_spec(package)
        places = None if found is None else found.submodule_search_locations
        spec = None if places is None else PathFinder.find_spec(name, places)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the package finds it there: types may be registered only once
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Take back what importing NIXL does to logging: a handler that writes INFO to stdout."""
    log = logging.getLogger("nixl")
    handlers, level = list(log.handlers), log.level
    propagate, raise_exceptions = log.propagate, logging.raiseExceptions
    try:
        yield
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)
        log.propagate, logging.raiseExceptions = propagate, raise_exceptions


def _start(agent_name: str, backend: str, devices: Sequence[str]) -> NixlAgent:
    nixl = _load_bindings()
    config = nixl.nixlAgentConfig()
    config.useProgThread = True  # a source must answer reads of peers while nobody calls it
    config.pthrDelay = PROGRESS_DELAY_MICROSECONDS
    config.useListenThread = False
    config.syncMode = nixl.NIXL_THREAD_SYNC_NONE  # our lock does it
    agent = nixl.nixlAgent(agent_name, config)
    plugins = agent.getAvailPlugins()
    if backend not in plugins:
        usable = [name for name in settings.NIXL_BACKENDS if name in plugins]
        raise TransportUnavailableError(
            f"NIXL has no backend {backend!r}; its backends between nodes are "
            f"{', '.join(usable) or 'none'}",
            hint="set MX_NIXL_BACKEND to one of them, with the same value on both ends",
        )
    return NixlAgent(nixl, agent, agent.createBackend(backend, _parameters(backend, devices)))


def _parameters(backend: str, devices: Sequence[str]) -> dict[str, str]:
    """Return what NIXL's backend is started with."""
    if backend != "UCX":
        return {}
    said = environment()
    ours = [each for each in UCX_DEFAULTS_OF_AGENTS if each.name not in said]
    config = [f"{each.name.removeprefix('UCX_')}={each.value}" for each in ours]
    pinned = () if "UCX_NET_DEVICES" in said else devices
    if len(pinned) == 1:
        config.append(f"NET_DEVICES={pinned[0]}")
    made = {"engine_config": ",".join(config)}
    if len(pinned) > 1:  # NIXL takes a comma in the former for the next variable
        made["device_list"] = ", ".join(map(_first_port_of, pinned))
    return made


def _first_port_of(device: str) -> str:
    """Return the device's name without its port: NIXL adds ":1" to each name of a list."""
    name, _, port = device.partition(":")
    if port not in ("", "1"):
        raise ConfigurationError(
            f"MX_RDMA_NIC_PIN names {device} among others, but NIXL takes a list of devices with "
            "their port 1 only",
            hint="set UCX_NET_DEVICES to the list, or name one device",
        )
    return name


def start_agent(
    agent_name: str, backend: str, timeout_seconds: float, devices: Sequence[str] = ()
) -> NixlAgent:
    """Start an agent in a thread of its own, so that a hang in UCX is an error and no hang.

    Raises:
        TransportUnavailableError: NIXL or the backend is missing, or does not start in time.
    """
    result: Future[NixlAgent] = Future()

    def run() -> None:
        try:
            result.set_result(_start(agent_name, backend, devices))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="nixl-start", daemon=True).start()
    try:
        return result.result(timeout_seconds)
    except TransportUnavailableError:
        raise
    except FutureTimeoutError:
        raise TransportUnavailableError(
            f"the NIXL agent {agent_name!r} did not start within {timeout_seconds:g} s",
            hint="state the network device in UCX_NET_DEVICES, or try UCX_TLS=tcp",
        ) from None
    except Exception as error:
        raise TransportUnavailableError(
            f"the NIXL backend {backend} does not start: {error or type(error).__name__}",
            hint="stderr has NIXL's reason; UCX_LOG_LEVEL=info shows more; UCX_NET_DEVICES and "
            "UCX_TLS choose the network",
        ) from error
