"""The distribution holds what the tree holds, imports what it says, and keeps the layers apart."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The four packages, and the folder of the repository that each one is.
FOLDERS = {
    "kittens": "kittens",
    "kittens.backends": "backends",
    "kittens.bench": "bench",
    "kittens.conformance": "conformance",
}

# Modules that `import kittens` has no business importing: they are heavy, or they are somebody's backend.
NOT_AT_IMPORT = {
    "click",
    "cuda",
    "cupy",
    "hip",
    "hypothesis",
    "jax",
    "matplotlib",
    "mlx",
    "Metal",
    "objc",
    "pytest",
    "rich",
    "rocm",
    "safetensors",
    "tokenizers",
    "torch",
    "ziglang",
    "kittens.backends",
    "kittens.bench",
    "kittens.cli",
    "kittens.conformance",
}

VENDOR_WORDS = ("warp", "wavefront", "simdgroup", "wgmma", "mfma", "nvrtc", "cupy", "hiprtc")
VENDOR_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(VENDOR_WORDS)})s?(?![a-z])", re.IGNORECASE)
# Parts of kittens/ whose very subject is the vendors' hardware.
MAY_NAME_VENDORS = ("kittens/layouts/", "kittens/sim/")


def tree_files() -> list[str]:
    """Every file of the working tree that git tracks or would track; all files where there is no git."""
    asked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if asked.returncode == 0 and asked.stdout:
        names = asked.stdout.decode().split("\0")
    else:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    skip = ("__pycache__", ".egg-info")
    return sorted({n for n in names if n and (ROOT / n).is_file() and not any(s in n for s in skip)})


def packaged_files() -> set[str]:
    """Where in a wheel each file of the four folders belongs."""
    place = {folder: package.replace(".", "/") for package, folder in FOLDERS.items()}
    wanted = set()
    for name in tree_files():
        folder, _, rest = name.partition("/")
        if rest and folder in place:
            wanted.add(f"{place[folder]}/{rest}")
    return wanted


def build(hook: str, source: Path, out: Path) -> Path:
    """Runs one hook of the build backend in its own process, without isolation and so without a network."""
    out.mkdir(parents=True, exist_ok=True)
    code = f"import sys, setuptools.build_meta as b; print(b.{hook}(sys.argv[1]), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stderr.strip().splitlines()[-1]


def wheel_contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return {name for name in names if not PurePosixPath(name).parts[0].endswith(".dist-info")}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the working tree, so that a build leaves nothing behind and finds nothing stale."""
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("tree")
    for name in tree_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_wheel", tree, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_four_folders_and_nothing_else(wheel: Path) -> None:
    found, wanted = wheel_contents(wheel), packaged_files()
    assert sorted(wanted - found) == [], "in the tree, not in the wheel: see package-data in pyproject.toml"
    assert sorted(found - wanted) == [], "in the wheel, not in the tree"


def test_a_new_subpackage_and_its_headers_reach_the_wheel(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    new = ("backends/new/__init__.py", "backends/new/device/a.h", "kittens/deep/er/__init__.py")
    for name in new:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("")
    contents = wheel_contents(build("build_wheel", copy, tmp_path / "out"))
    assert {"kittens/" + new[0], "kittens/" + new[1], new[2]} <= contents


def test_a_wheel_made_from_the_sdist_is_the_same(tree: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build("build_sdist", tree, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    for name in ("LICENSE", "CHANGELOG.md", "tests/test_packaging.py"):
        assert (unpacked / name).is_file(), name
    assert wheel_contents(build("build_wheel", unpacked, tmp_path / "again")) == wheel_contents(wheel)


def test_the_wheel_declares_the_command_and_the_backends(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt"))
        text = archive.read(name).decode()
    assert "kittens = kittens.cli:main" in text
    for backend in ("numpy", "cuda", "hip", "metal"):
        assert f"{backend} = kittens.backends.{backend}" in text


@pytest.mark.parametrize("kind", ["editable", "wheel"])
def test_an_install_finds_the_four_packages(kind: str, tree: Path, wheel: Path, tmp_path: Path) -> None:
    built = wheel if kind == "wheel" else build("build_editable", tree, tmp_path / "built")
    site = tmp_path / "site"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
    code = """
import sys
# The environment that runs this test may hold an editable install of its own, whose finder has the same name.
editable = [name for name in sys.modules if name.startswith("__editable__")]
sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "__module__", "") not in editable]
for name in editable:
    del sys.modules[name]
import importlib.util, json, site
sys.path.insert(0, sys.argv[1])
site.addsitedir(sys.argv[1])
specs = {name: importlib.util.find_spec(name) for name in sys.argv[2:]}
print(json.dumps({name: spec and spec.origin for name, spec in specs.items()}))
"""
    modules = list(FOLDERS)
    modules += [m for m in ("kittens.backends.numpy",) if (ROOT / "backends/numpy/__init__.py").is_file()]
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(site), *modules],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    origins = json.loads(done.stdout.splitlines()[-1])
    for module in modules:
        if kind == "wheel":
            expected = site.joinpath(*module.split("."), "__init__.py")
        else:
            package = max((p for p in FOLDERS if f"{module}.".startswith(f"{p}.")), key=len)
            inside = module[len(package) :].strip(".").split(".") if module != package else []
            expected = tree.joinpath(FOLDERS[package], *inside, "__init__.py")
        assert origins[module] and Path(origins[module]).samefile(expected), (module, origins[module])


def test_folders_with_modules_are_packages() -> None:
    """A module in a folder without `__init__.py` works by luck, and type checkers miss it."""
    bare = {
        PurePosixPath(name).parent.as_posix()
        for name in tree_files()
        if name.endswith(".py") and name.partition("/")[0] in FOLDERS.values()
        if not (ROOT / name).with_name("__init__.py").is_file()
    }
    assert bare == set()


def test_importing_kittens_imports_nothing_heavy() -> None:
    code = "import json, sys, kittens; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert [m for m in loaded if any(m == no or m.startswith(f"{no}.") for no in NOT_AT_IMPORT)] == []


def python_files(folder: str) -> list[str]:
    return [name for name in tree_files() if name.startswith(f"{folder}/") and name.endswith(".py")]


def test_without_torch_its_module_says_what_brings_it() -> None:
    code = "import sys; sys.modules['torch'] = None; import kittens.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()[-1]
    assert said == "ModuleNotFoundError: kittens.torch needs PyTorch: pip install 'kittens-gpu[torch]'"


def test_kittens_names_no_vendor_hardware() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in python_files("kittens")
        if not name.startswith(MAY_NAME_VENDORS)
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1)
        if VENDOR_WORD.search(line)
    ]
    assert found == []


def imports(name: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, module) of what a file imports: by statement, or by a name it holds as a string."""
    for node in ast.walk(ast.parse((ROOT / name).read_text("utf-8"), name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"kittens\.backends(\.\w+)+", node.value):
                yield node.lineno, node.value


def package_of(name: str) -> str:
    """The package that relative imports in a file start from."""
    folder, *rest = PurePosixPath(name).parent.parts
    package = next(p for p, f in FOLDERS.items() if f == folder)
    return ".".join([package, *rest])


def test_relative_imports_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test below is only as good as this."""
    (tmp_path / "backends/hip").mkdir(parents=True)
    (tmp_path / "backends/hip/a.py").write_text(
        "from ..cuda import x\nfrom . import b\nfrom .. import metal\nload('kittens.backends.numpy')\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = [module for _, module in imports("backends/hip/a.py", package_of("backends/hip/a.py"))]
    assert sorted(found) == [
        "kittens.backends.cuda.x",
        "kittens.backends.hip.b",
        "kittens.backends.metal",
        "kittens.backends.numpy",
    ]


def test_no_backend_imports_another_and_kittens_imports_none() -> None:
    found = []
    for name in [*python_files("backends"), *python_files("kittens")]:
        package = package_of(name)
        own = ".".join(package.split(".")[:3]) if package.startswith("kittens.backends.") else None
        for line, module in imports(name, package):
            other = ".".join(module.split(".")[:3])
            if other.startswith("kittens.backends") and other not in ("kittens.backends", own):
                found.append(f"{name}:{line}: {module}")
    assert found == []
