"""Backends come from anywhere: a stranger's distribution is installed, picked up, used, and may be broken."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pluggy
import pytest

import kittens as kt
from kittens import plugins
from kittens.errors import TargetError, UnavailableError
from kittens.plugins import hookimpl
from kittens.targets import Target, TargetInfo, parse

GOOD = """
    from kittens.arguments import TensorArg
    from kittens.backends.numpy.launch import execute
    from kittens.dtypes import as_dtype
    from kittens.plugins import hookimpl
    from kittens.runtime import Run
    from kittens.targets import Target, TargetInfo
    import dataclasses, numpy

    class Parcel:
        def __init__(self, data):
            self.data = numpy.array(data, "float32")

    @hookimpl
    def kittens_targets():
        return [TargetInfo("tiny", "a stranger", can=("execute",)), TargetInfo("tiny:v2", "another", missing={"execute": "v2"})]

    @hookimpl
    def kittens_adopt(array):
        if isinstance(array, Parcel):
            a = array.data
            return TensorArg(as_dtype(a.dtype), a.shape, tuple(s // 4 for s in a.strides), Target("tiny"), a)

    @hookimpl
    def kittens_tunables(target, kernel):
        return {"B": 2} if target.backend == "tiny" else None

    @hookimpl
    def kittens_launch(target, launch):
        if target.backend == "tiny":
            execute(launch)
            return Run(launch.kernel.name, str(target), "simulated", launch.grid, launch.constants)
"""
MISSPELT = """
    from kittens.plugins import hookimpl

    @hookimpl
    def kittens_lunch(target, launch):
        return None
"""
WRONG_ARGUMENT = """
    from kittens.plugins import hookimpl

    @hookimpl
    def kittens_launch(target, lunch):
        return None
"""
IMPORTS = """
    import a_library_that_nobody_has
"""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A distribution with one good and three broken backends, installed into a folder of its own."""
    root = tmp_path_factory.mktemp("stranger")
    source = root / "source"
    source.mkdir()
    for name, body in (
        ("good", GOOD),
        ("misspelt", MISSPELT),
        ("wrong", WRONG_ARGUMENT),
        ("imports", IMPORTS),
    ):
        (source / f"tiny_{name}.py").write_text(textwrap.dedent(body), encoding="utf-8")
    (source / "pyproject.toml").write_text(
        textwrap.dedent("""
            [build-system]
            requires = ["setuptools"]
            build-backend = "setuptools.build_meta"
            [project]
            name = "tiny-kittens-backend"
            version = "1"
            [project.entry-points."kittens.backends"]
            tiny = "tiny_good"
            misspelt = "tiny_misspelt"
            wrong = "tiny_wrong"
            imports = "tiny_imports"
            [tool.setuptools]
            py-modules = ["tiny_good", "tiny_misspelt", "tiny_wrong", "tiny_imports"]
        """),
        encoding="utf-8",
    )
    target = root / "installed"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(target),
        str(source),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return target


def ask(stranger, script):
    """Run a script that prints JSON in a process that sees the installed distribution."""
    code = f"import sys, json; sys.path.insert(0, {str(stranger)!r})\n" + textwrap.dedent(script)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_stranger_is_picked_up(stranger):
    said = ask(
        stranger,
        """
        import kittens as kt, numpy as np
        from kittens import plugins
        from tiny_good import Parcel

        @kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
        def double(x, o, *, B=kt.tunable(4)):
            i = kt.program_id()
            kt.store(o, i, kt.load(x, i, B) * 2)

        x, o = Parcel([1, 2, 3, 4, 5]), Parcel([0] * 5)
        run = double(x, o)
        other = np.zeros(5, "float32")
        elsewhere = double(x.data, other)
        chosen = double(x.data, other, on="tiny")
        mixed = ""
        try:
            double(x, other)
        except kt.ArgumentError as error:
            mixed = str(error)
        print(json.dumps([[t.name for t in plugins.targets()], o.data.tolist(), run.target, run.how,
        run.constants,
                          elsewhere.target, chosen.target, mixed]))
        """,
    )
    targets, out, target, how, constants, elsewhere, chosen, mixed = said
    assert {"tiny", "tiny:v2", "numpy"} <= set(targets)
    assert out == [2, 4, 6, 8, 10]
    assert (target, how, constants) == ("tiny", "simulated", {"B": 2})
    assert (elsewhere, chosen) == ("numpy", "tiny")
    assert "x on tiny" in mixed and "o on numpy" in mixed


def test_broken_backends_are_listed_with_the_reason_and_harm_nothing(stranger):
    failed, errors, names = ask(
        stranger,
        """
        import kittens as kt, numpy as np
        from kittens import plugins

        @kt.kernel
        def nothing(x): pass

        errors = []
        for name in ("imports", "misspelt", "wrong", "unheard"):
            try:
                nothing(np.zeros(1), on=name)
            except kt.KittensError as error:
                errors.append([type(error).__name__, str(error)])
        nothing(np.zeros(1))
        print(json.dumps([plugins.failed(), errors, [n for n, _ in plugins.manager().list_name_plugin()]]))
        """,
    )
    assert "No module named 'a_library_that_nobody_has'" in failed["imports"]
    assert "kittens_lunch" in failed["misspelt"]
    assert "lunch" in failed["wrong"]
    assert not {"imports", "misspelt", "wrong"} & set(names) and {"tiny", "numpy"} <= set(names)
    assert [kind for kind, _ in errors] == ["UnavailableError"] * 3 + ["TargetError"]
    assert "a_library_that_nobody_has" in errors[0][1]


def test_importing_kittens_loads_no_backend(stranger):
    loaded = ask(
        stranger, "import kittens\nprint(json.dumps([m for m in sys.modules if m.startswith('tiny')]))"
    )
    assert loaded == []


# In this process.


def test_register_is_all_or_nothing():
    class Backend:
        @hookimpl
        def kittens_targets(self):
            return [TargetInfo("mine", "")]

        @hookimpl
        def kittens_nonsense(self):
            return None

    manager = plugins.new_manager()
    with pytest.raises(pluggy.PluginValidationError, match="nonsense"):
        plugins.register(manager, Backend(), "mine")
    assert not manager.has_plugin("mine") and manager.hook.kittens_targets() == []
    del Backend.kittens_nonsense
    plugins.register(manager, Backend(), "mine")
    assert [t.name for infos in manager.hook.kittens_targets() for t in infos] == ["mine"]


def test_our_own_are_registered_as_a_strangers_would_be():
    assert plugins.manager().has_plugin("numpy")
    assert [t.can for t in plugins.targets() if t.name == "numpy"] == [("execute",)]
    assert plugins.check(Target("numpy")) == Target("numpy")
    with pytest.raises(TargetError, match="the targets are"):
        plugins.check(Target("numpy", simulated=True))
    with pytest.raises(UnavailableError, match="does not offer compile"):
        plugins.ask("kittens_compile", Target("numpy"), function=None)


def test_names_of_targets():
    for name in ("numpy", "cuda:sm_90a", "cuda:0", "hip:gfx950@sim", "metal@sim"):
        assert str(parse(name)) == name and parse(parse(name)) == parse(name)
    assert parse("cuda:1").index == 1 and parse("cuda:sm_80").arch == "sm_80" and parse("hip@sim").simulated
    for junk in ("", "CUDA", "cuda:", "cuda:sm 80", "cuda@device", None):
        with pytest.raises(TargetError):
            parse(junk)


def test_a_failed_backend_of_this_process(monkeypatch):
    monkeypatch.setattr(plugins, "failed", lambda: {"ghost": "ImportError: no ghost"})
    with pytest.raises(UnavailableError, match="could not be loaded: ImportError: no ghost"):
        plugins.check(Target("ghost"))


def test_the_module_answers_for_its_parts():
    assert kt.__version__[0].isdigit()
    assert kt.kernels and kt.ops
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kt.nothing
    assert np.float32 is not kt.float32


def test_backends_that_generate_source_share_their_hooks_and_answer_for_their_own_targets() -> None:
    from kittens.backends import cuda, hip, metal
    from kittens.generating import hooks

    shared = hooks("none", cuda._parts)
    assert {"kittens_plan", "kittens_emit", "kittens_compile", "kittens_launch", "kittens_run"} < set(shared)
    for name, module in (("cuda", cuda), ("hip", hip), ("metal", metal)):
        assert set(shared) <= set(vars(module))
        own, strange = Target(name, simulated=True), Target("none")
        assert module.kittens_architecture(target=own) == module._parts().default
        assert module.kittens_architecture(target=strange) is None
        assert module.kittens_candidates(target=own, kernel="matmul", arguments={})
        assert module.kittens_candidates(target=strange, kernel="matmul", arguments={}) is None
        assert module.kittens_rates(target=own) == module._parts().rates[module._parts().default]
        for hook in ("kittens_plan", "kittens_compile"):
            assert getattr(module, hook)(target=strange, function=None) is None
