"""Archives: nothing of them gets out of the folder of the thread, and of one that is refused nothing is written."""

from __future__ import annotations

import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from jianmu.thread.files import ThreadFiles
from jianmu.thread.filesarchive import unpack

UPLOAD = "/mnt/user-data/uploads/a"


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """Return a zip archive."""
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return made.getvalue()


def tarred(*members: tuple[str, bytes], mode: Any = "w:gz", **odd: dict[str, Any]) -> bytes:
    """Return a tar archive; `odd` has attributes of more members by name."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
        for name, attributes in odd.items():
            info = tarfile.TarInfo(name)
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.addfile(info)
    return made.getvalue()


def linked() -> zipfile.ZipInfo:
    """Return a member of a zip archive that says that it is a link."""
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    return info


GOOD = ("good.txt", b"good")
HOSTILE = {
    "up": zipped(GOOD, ("../bad", b"bad")),
    "far up": zipped(GOOD, ("a/../../../../bad", b"bad")),
    "absolute": zipped(GOOD, ("/bad", b"bad")),
    "backslash": zipped(GOOD, ("..\\bad", b"bad")),
    "zip link": zipped(GOOD, (linked(), b"/etc/passwd")),
    "tar up": tarred(GOOD, ("../bad", b"bad")),
    "tar absolute": tarred(GOOD, ("/bad", b"bad")),
    "tar link": tarred(GOOD, out={"type": tarfile.SYMTYPE, "linkname": "/etc"}),
    "tar hard link": tarred(GOOD, out={"type": tarfile.LNKTYPE, "linkname": "../../secret"}),
    "tar device": tarred(GOOD, out={"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}),
    "tar pipe": tarred(GOOD, out={"type": tarfile.FIFOTYPE}),
    "too many": zipped(*[(str(number), b"") for number in range(30)]),
    "bomb": zipped(("zeros", bytes(5_000_000))),
    "tar bomb": tarred(("zeros", bytes(5_000_000))),
    "no archive": b"text",
    "half": tarred(GOOD, ("more", bytes(range(256)) * 100))[:-60],
}


@pytest.fixture
def files(tmp_path: Path) -> ThreadFiles:
    """The files of a thread."""
    return ThreadFiles(tmp_path / "t1")


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_whole(files: ThreadFiles, tmp_path: Path, data: bytes) -> None:
    """Not even its harmless members are written."""
    files.write(UPLOAD, data)
    with pytest.raises(ValueError, match=r"\.\.|leads out|is a link|more than|is no zip|cannot be unpacked"):
        unpack(files, UPLOAD, count=20, size=1_000_000)
    assert [one.path for one in files.walk("/mnt/user-data/workspace")] == []
    assert {one.name for one in tmp_path.iterdir()} == {"t1"}


@pytest.mark.parametrize("data", [zipped(("d/", b""), ("d/x", b"1"), GOOD), tarred(("d/x", b"1"), GOOD)])
def test_an_archive_is_unpacked_into_a_folder(files: ThreadFiles, data: bytes) -> None:
    """Its files are where it says, below the folder that was given."""
    files.write(UPLOAD, data)
    made = unpack(files, UPLOAD, "/mnt/user-data/workspace/new")
    assert made == ["/mnt/user-data/workspace/new/d/x", "/mnt/user-data/workspace/new/good.txt"]
    assert [files.read(path) for path in made] == [b"1", b"good"]


def test_a_link_in_the_folder_is_not_followed(files: ThreadFiles, tmp_path: Path) -> None:
    """What a program has put in the way leads no member out."""
    files.write(UPLOAD, zipped(("out/bad", b"bad")))
    (tmp_path / "t1/workspace/out").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="links are not followed"):
        unpack(files, UPLOAD)
    assert not (tmp_path / "bad").exists()
