"""Builds the package with the standard library alone, so that pip needs nothing else to build it.

It is the build backend that pyproject.toml names (PEP 517, PEP 660). Each hook writes one file into
a directory and returns its name.
"""

import base64
import hashlib
import io
import os
import tarfile
import zipfile

NAME = "mooring_client"
VERSION = "0.0.0"
METADATA = f"""\
Metadata-Version: 2.1
Name: mooring-client
Version: {VERSION}
Summary: A client of the Mooring gateway for MongoDB, for threads and for asyncio.
License: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: httpx>=0.23
Provides-Extra: bson
Requires-Dist: pymongo; extra == "bson"
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: mooring_build
Root-Is-Purelib: true
Tag: py3-none-any
"""


def _modules():
    """Returns the names of the package's files."""
    names = sorted(os.listdir(NAME))
    return [f"{NAME}/{name}" for name in names if name.endswith((".py", ".typed"))]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {}
    for name in _modules():
        with open(name, "rb") as file:
            files[name] = file.read()
    return _write_wheel(wheel_directory, files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that has the path of this directory in place of the package's files."""
    return _write_wheel(wheel_directory, {f"{NAME}.pth": f"{os.getcwd()}\n".encode()})


def _write_wheel(wheel_directory, files):
    info = f"{NAME}-{VERSION}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": METADATA.encode(),
        f"{info}/WHEEL": WHEEL.encode(),
    }
    record = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    path = os.path.join(wheel_directory, wheel)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{VERSION}"
    sdist = f"{base}.tar.gz"
    with tarfile.open(os.path.join(sdist_directory, sdist), "w:gz") as archive:
        about = tarfile.TarInfo(f"{base}/PKG-INFO")
        about.size = len(METADATA)
        archive.addfile(about, io.BytesIO(METADATA.encode()))
        for name in ["README.md", "pyproject.toml", *_modules(), __file__]:
            archive.add(name, f"{base}/{os.path.relpath(name)}")
    return sdist
