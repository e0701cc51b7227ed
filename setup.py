"""Where the packages are; everything else is in pyproject.toml.

The distribution's packages come from four folders of the repository. They are listed here, and their
subpackages are found, so that a new folder is never left out of a wheel. Folders without `__init__.py`
are found too: they hold headers and tables.
"""

from setuptools import find_namespace_packages, setup

FOLDERS = {
    "kittens": "kittens",
    "kittens.backends": "backends",
    "kittens.bench": "bench",
    "kittens.conformance": "conformance",
}


def packages() -> list[str]:
    found = []
    for package, folder in FOLDERS.items():
        found.append(package)
        inner = find_namespace_packages(folder, exclude=["*__pycache__*"])
        found.extend(f"{package}.{name}" for name in inner)
    return found


setup(packages=packages(), package_dir=FOLDERS)
