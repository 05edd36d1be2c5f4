"""Make a virtual environment of this project and install what it needs.

usage: python tools/setup_env.py project DIRECTORY [EXTRA ...]
       python tools/setup_env.py interop DIRECTORY
       python tools/setup_env.py kinds NAME DIRECTORY

Runs with any Python 3.10 or newer and needs nothing installed. An environment that is there
already is completed, so running it again is cheap.

torch: a machine with a GPU keeps the torch that this Python has, whose CUDA fits its driver; the
environment then looks it up where it lies. Elsewhere a fixed version is installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

OLDEST_PYTHON = (3, 10)
TORCH = "torch==2.13.0"
"""Where there is no GPU; on the project's build machines pip finds a CPU wheel of it."""

MODELEXPRESS = "modelexpress==0.7.0"
INTEROP = (
    # What modelexpress 0.7.0 imports for our purposes. Its own pins differ from ours, so it is
    # installed without them and never beside our library.
    "grpcio==1.80.*",
    "protobuf<7",
    "google-crc32c",
    "pydantic",
    "huggingface_hub",
    "nixl==1.5.1",
    "numpy",
)

KINDS = {
    # The compilers of real caches (tests/kinds/caches.py), a list of pip's arguments per call. Each
    # environment has a torch built for CUDA, and our library beside it.
    "cuda": (
        ("torch==2.14.1",),
        (
            *("flashinfer-python==0.7.4", "nvidia-cutlass-dsl==4.8.1"),
            *("apache-tvm-ffi==0.1.15.post2", "ninja==1.13.0"),
        ),
        ("--no-deps", "sgl-deep-gemm==0.2.5"),  # asks for a torch of its own
    ),
    "tilelang": (("torch==2.13.0",), ("tilelang==0.1.15", "ninja==1.13.0")),
    "vllm": (
        ("torch==2.14.1",),
        # Its requirements have kernels of several GB; these are what its compile path imports.
        ("--no-deps", "vllm==0.33.0"),
        (
            *("transformers==5.20.2", "openai==3.57.0", "openai-harmony==0.0.8"),
            *("fastapi==0.165.0", "requests==2.34.2", "aiohttp==3.14.5", "cachetools==8.0.2"),
            *("cbor2==6.3.0", "cloudpickle==3.1.3", "llguidance==1.9.1", "msgspec==0.23.0"),
            *("partial-json-parser==0.2.1.1.post7", "pillow==13.0.0", "prometheus_client==0.26.0"),
            *("psutil==7.2.2", "py-cpuinfo==9.0.0", "pybase64==1.5.1", "pyzmq==27.3.0"),
            *("regex==2026.11.19", "uvloop==0.23.0", "xgrammar==0.2.9"),
        ),
    ),
}

ROOT = Path(__file__).resolve().parent.parent


class SetupError(Exception):
    """Why the environment cannot be made, and what to do."""


def make_environment(directory: Path) -> Path:
    """Make the environment, if it is not there, and return its Python."""
    python = directory / "bin" / "python"
    if not works(python):
        if importlib.util.find_spec("ensurepip") is None:
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise SetupError(
                f"{sys.executable} cannot make virtual environments: it has no ensurepip.\n"
                f"Install it (Debian, Ubuntu: apt install python{version}-venv), "
                "or name another Python: make PYTHON=/path/to/python"
            )
        venv.create(directory, clear=True, with_pip=True, symlinks=True)
    return python


def works(python: Path) -> bool:
    """Tell whether `python` starts and has pip; the one it was made from may be gone."""
    command = [str(python), "-c", "import pip"]
    return python.exists() and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def has(python: Path, module: str) -> bool:
    """Tell whether `python` can import a top-level module; nothing is imported."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([str(python), "-c", code]).returncode == 0


def pip_install(python: Path, *arguments: str) -> None:
    """Install quietly; what pip has to say of an error is seen."""
    options = ["-qq", "--disable-pip-version-check", "--no-input"]  # errors only
    environment = {**os.environ, "PIP_USER": "0"}  # no --user, whatever a pip.conf says
    command = [str(python), "-m", "pip", "install", *options, *arguments]
    if subprocess.run(command, env=environment, cwd=ROOT).returncode != 0:
        raise SetupError(f"pip could not install {' '.join(arguments)}")


def has_gpu() -> bool:
    """Tell whether there is an NVIDIA GPU with a working driver."""
    try:
        finished = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return finished.returncode == 0 and b"GPU" in finished.stdout


def provide_torch(python: Path) -> None:
    """Give the environment a torch."""
    if has_gpu():
        installed = importlib.util.find_spec("torch")
        if installed is not None and installed.origin and not has(python, "torch"):
            link_site(python, Path(installed.origin).parent.parent)
        return  # without one, pip installs what the project asks for
    pip_install(python, TORCH)  # satisfied already: well below a second, without network


def link_site(python: Path, site: Path) -> None:
    """Let the environment find packages of `site` that it does not have itself."""
    code = "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"
    purelib = json.loads(subprocess.check_output([str(python), "-c", code]))
    (Path(purelib) / "torch-of-this-machine.pth").write_text(f"{site}\n")


def tell_of_compiled_part(python: Path) -> None:
    """Say it where the project works without its compiled part: pip, when quiet, does not."""
    code = (
        "from mx_artifacts.bulk.library import absence\n"
        "if found := absence(): print(f'note: the compiled part is not used: {found.why}.',"
        " 'All works, but many small files take longer.', found.next_step)"
    )
    subprocess.run([str(python), "-c", code], cwd=ROOT, check=True)


def set_up_project(directory: Path, extras: "list[str]") -> None:
    """Make the environment of this project, the project itself editable."""
    python = make_environment(directory)
    provide_torch(python)
    # torch may have brought the triton that it needs; another version would break it.
    if has(python, "triton"):
        extras = [extra for extra in extras if extra != "demo"]
    pip_install(python, "--editable", f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT))
    tell_of_compiled_part(python)


def set_up_interop(directory: Path) -> None:
    """Make the environment of the reference package."""
    python = make_environment(directory)
    provide_torch(python)
    pip_install(python, *INTEROP)
    pip_install(python, "--no-deps", MODELEXPRESS)


def set_up_kinds(name: str, directory: Path) -> None:
    """Make the environment of the compilers `name` (a key of KINDS), the project itself in it."""
    python = make_environment(directory)
    for packages in KINDS[name]:
        pip_install(python, *packages)
    pip_install(python, "--editable", str(ROOT))


def main(arguments: "list[str]") -> int:
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        raise SetupError(
            f"{sys.executable} is Python {sys.version.split()[0]}; {needed} or newer is needed.\n"
            "Name one: make PYTHON=/path/to/python"
        )
    if arguments[:1] == ["project"] and len(arguments) >= 2:
        set_up_project(Path(arguments[1]).absolute(), arguments[2:])
    elif arguments[:1] == ["interop"] and len(arguments) == 2:
        set_up_interop(Path(arguments[1]).absolute())
    elif arguments[:1] == ["kinds"] and len(arguments) == 3 and arguments[1] in KINDS:
        set_up_kinds(arguments[1], Path(arguments[2]).absolute())
    else:
        raise SetupError(str(__doc__).strip())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (SetupError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"set-up failed: {error}")
