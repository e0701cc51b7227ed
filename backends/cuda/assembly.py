"""Machine code as text, by NVIDIA's disassembler: NVRTC makes none."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from kittens.artifact import Artifact
from kittens.errors import UnavailableError

_NAME = "nvdisasm"


def disassembler() -> str | None:
    """Where nvdisasm is: in a package of NVIDIA's, or on PATH; None if it is not installed."""
    for package in distributions():
        if (package.metadata["Name"] or "").startswith(f"nvidia-cuda-{_NAME}"):
            for file in package.files or ():
                if file.stem == _NAME and (found := Path(str(package.locate_file(file)))).is_file():
                    return str(found)
    return shutil.which(_NAME)


def assembly(artifact: Artifact) -> str:
    """The code of a compiled kernel as SASS. Raises UnavailableError without nvdisasm, or if it cannot read the code."""
    program = disassembler()
    if program is None:
        raise UnavailableError(
            f"{_NAME} is not installed, and NVRTC gives no assembly",
            hint="pip install 'kittens-gpu[compile]' brings it; the CUDA toolkit has it too",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(artifact.code)
        ran = subprocess.run(
            [program, "--print-code", str(file)], capture_output=True, text=True, check=False
        )
    if ran.returncode:
        raise UnavailableError(
            f"{program} cannot read the code of {artifact.kernel}: {ran.stderr.strip()[:500]}"
        )
    return ran.stdout
