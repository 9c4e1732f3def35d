"""Files by virtual paths: what is outside stays out of reach."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jianmu.thread.files import LARGEST, ThreadFiles, fits

OUTSIDE = [
    "/etc/passwd", "../../x", "/mnt/user-data/../x", "/mnt/user-data/workspace/../../x", "/mnt/user-data/tmp/x",
    "/mnt/user-data2/x", "a/../../x", "a\0b", "a\nb", "\udc80", "//etc/passwd", "/mnt/user-data/workspace/a/../b",
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> ThreadFiles:
    """The files of a thread whose folder lies beside a secret."""
    (tmp_path / "secret").write_text("secret")
    return ThreadFiles(tmp_path / "t1")


def workspace(files: ThreadFiles) -> Path:
    """Return the real workspace, made."""
    path = Path(files.folder, "workspace")
    path.mkdir(parents=True, exist_ok=True)
    return path


def every_way(files: ThreadFiles, path: str) -> list[Callable[[], object]]:
    """Return all that can be done with a path."""
    return [
        lambda: files.read(path),
        lambda: files.write(path, b"bad"),
        lambda: files.write(path, b"bad", append=True),
        lambda: files.replace(path, "secret", "bad"),
        lambda: list(files.walk(path)),
        lambda: list(files.glob("**", path)),
        lambda: files.grep("secret", path),
        lambda: files.descriptor(path),
    ]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leads_out_is_refused(files: ThreadFiles, path: str, tmp_path: Path) -> None:
    """Nothing can be done with it, and what is said has no path of the machine."""
    for act in every_way(files, path):
        with pytest.raises(ValueError, match=r"outside of|has '\.\.' in it|in none of|no path here may have") as caught:
            act()
        assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("target", ["secret", ".", "t1/workspace/plain"])
@pytest.mark.parametrize("below", ["", "/secret", "/new/file"])
def test_links_are_not_followed(files: ThreadFiles, tmp_path: Path, target: str, below: str) -> None:
    """A link, or a path through one, is refused wherever it leads; the secret stays as it is."""
    (workspace(files) / "plain").write_text("plain")
    (workspace(files) / "link").symlink_to(tmp_path / target)
    for act in every_way(files, f"link{below}"):
        with pytest.raises(ValueError, match=r"is a link|leads through|is no plain file"):
            act()
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "new").exists()
    assert [(one.path, one.kind) for one in files.walk("/mnt/user-data/workspace")] == [
        ("/mnt/user-data/workspace/link", "link"),
        ("/mnt/user-data/workspace/plain", "file"),
    ]


@pytest.mark.parametrize("place", ["t1/workspace", "t1"])
def test_an_area_that_was_made_a_link_is_refused(files: ThreadFiles, tmp_path: Path, place: str) -> None:
    """A program may move its own folder away and put a link there: nothing is done through it."""
    workspace(files)
    (tmp_path / place).rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    for act in (lambda: files.write("x", b"bad"), lambda: files.read("x")):
        with pytest.raises(ValueError, match="links are not followed"):
            act()
    assert not (tmp_path / "elsewhere/x").exists()


def test_a_folder_that_becomes_a_link_at_any_moment_leads_nowhere(files: ThreadFiles, tmp_path: Path) -> None:
    """While a folder is changed for a link to the outside and back, no read ever shows what is there."""
    inside = workspace(files)
    (inside / "a").mkdir()
    (inside / "a/secret").write_text("inside")
    (inside / "b").symlink_to(tmp_path)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for old, new in (("a", "c"), ("b", "a"), ("a", "b"), ("c", "a")):
                (inside / old).rename(inside / new)

    thread = threading.Thread(target=swap)
    thread.start()
    found = set[bytes]()
    try:
        for _ in range(1500):
            try:
                found.add(files.read("a/secret"))
            except ValueError:
                continue
    finally:
        is_over.set()
        thread.join()
    assert found == {b"inside"}


def test_a_write_through_a_hard_link_changes_no_other_name(files: ThreadFiles, tmp_path: Path) -> None:
    """The new content is a new file: the other name keeps what it had."""
    os.link(tmp_path / "secret", workspace(files) / "same")
    files.write("same", b"bad")
    files.write("same", b"bad", append=True)
    assert (files.read("same"), (tmp_path / "secret").read_text()) == (b"badbad", "secret")


def test_what_is_no_plain_file_is_not_opened(files: ThreadFiles) -> None:
    """A pipe makes nobody wait, also in a search."""
    os.mkfifo(workspace(files) / "pipe")
    for act in (lambda: files.read("pipe"), lambda: files.write("pipe", b""), lambda: files.descriptor("pipe")):
        with pytest.raises(ValueError, match="'pipe' is no plain file"):
            act()
    assert files.grep("x") == []


def test_a_file_that_is_too_large_is_not_read(files: ThreadFiles) -> None:
    """Its size is told; appending to it is refused as well, and loses nothing."""
    with (workspace(files) / "large").open("wb") as file:
        file.truncate(LARGEST + 1)
    for act in (lambda: files.read("large"), lambda: files.write("large", b"x", append=True)):
        with pytest.raises(ValueError, match=f"'large' has {LARGEST + 1} bytes; at most {LARGEST} are read"):
            act()
    assert (workspace(files) / "large").stat().st_size == LARGEST + 1


def test_files_are_written_read_and_changed(files: ThreadFiles) -> None:
    """Relative paths are meant in the workspace; folders are made; a mode stays."""
    files.write("a/b.sh", b"one two")
    (workspace(files) / "a/b.sh").chmod(0o755)
    assert files.replace("/mnt/user-data/workspace/a/b.sh", "one", "two") == 1
    assert files.replace("a/./b.sh", "two", "x", every=True) == 2
    assert files.read("a/b.sh") == b"x x"
    assert (workspace(files) / "a/b.sh").stat().st_mode & 0o777 == 0o755
    assert [one.path for one in files.walk("a")] == ["/mnt/user-data/workspace/a/b.sh"]


@pytest.mark.parametrize(
    ("old", "says"),
    [("", "is empty"), ("no", "does not have this text"), ("x", "2 times: give more of what is around")],
)
def test_a_text_that_is_not_there_once_is_not_replaced(files: ThreadFiles, old: str, says: str) -> None:
    """The file stays as it is, and the error says what to do."""
    files.write("f", b"x x")
    with pytest.raises(ValueError, match=says):
        files.replace("f", old, "y")
    assert files.read("f") == b"x x"


@pytest.mark.parametrize(
    ("path", "pattern", "does"),
    [
        ("a.py", "*.py", True), ("b/a.py", "*.py", False), ("b/a.py", "**/*.py", True), ("a.py", "**/*.py", True),
        ("x/y/z", "**", True), ("x/y/z", "x/**/z", True), ("x/z", "x/**/z", True), ("x/y", "x/**/z", False),
        ("x/y/z", "**/**/z", True), ("a1", "a[0-9]", True), ("a" * 250, "*a" * 60 + "b", False),
    ],
)  # fmt: skip
def test_patterns(path: str, pattern: str, does: bool) -> None:
    """`**` is any folders, none among them; `*` stays within a name, and no pattern takes long."""
    assert fits(path.split("/"), pattern.split("/")) is does


def test_a_search_shows_lines_and_passes_over_what_is_no_text(files: ThreadFiles) -> None:
    """A line is shown with its file and number, cut where it is long; one file can be searched alone."""
    files.write("a.py", b"import os\nx = 'needle'\n")
    files.write("b.bin", b"needle\0")
    files.write("c.txt", b"needle" + b"-" * 1000)
    found = files.grep("needle")
    assert found[0] == "/mnt/user-data/workspace/a.py:2: x = 'needle'"
    assert [len(line) < 600 for line in found] == [True, True]
    assert files.grep("needle", glob="**/*.py") == found[:1] == files.grep("needle", "a.py")
    with pytest.raises(ValueError, match="the pattern is no regular expression"):
        files.grep("(")


def test_a_name_with_a_line_break_cannot_forge_a_list(files: ThreadFiles) -> None:
    """Signs that would break a line are shown as escapes."""
    (workspace(files) / "a\n/mnt".replace("/", "_")).write_text("")
    assert [one.path for one in files.walk("/mnt/user-data/workspace")] == [r"/mnt/user-data/workspace/a\n_mnt"]
