"""The tables of a store, step by step from version to version, in the words that SQLite and PostgreSQL share.

Statements are written once: `?` is a value, `{now}` the store's clock, `{lock}` what keeps a row that was read from
others until the end of the transaction; a dialect fills them in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol  # Any: a row, whose columns are the statement's

from jianmu.errors import CorruptRecordError, SchemaVersionError

Mode = Literal["look", "read", "write", "last"]
"""What a transaction is: one statement that reads; several that read, of one moment; a write; a write that has to
survive a power cut."""


class Cursor(Protocol):
    """What a statement has found or done."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...


class Say(Protocol):
    """Runs a statement in the transaction at hand."""

    def __call__(self, text: str, values: Sequence[object] = (), /) -> Cursor:
        """Run a statement with its values."""
        ...


@dataclass(frozen=True)
class Dialect:
    """The words of one database.

    Attributes:
        value: stands for a value.
        key: the type of a number that the database gives to each row.
        id: the type of texts that are compared and put in order, by their code points.
        now: the store's clock, in seconds since 1970.
        lock: at the end of a SELECT: nobody else changes the row before this transaction ends.
        fences: makes the counter of fences.
        fence: the statement that returns the next fence.
    """

    value: str
    key: str
    id: str
    now: str
    lock: str
    fences: tuple[str, ...]
    fence: str

    def render(self, text: str) -> str:
        """Return a statement in the words of the database."""
        words = {"{key}": self.key, "{id}": self.id, "{now}": self.now, "{lock}": self.lock, "{fence}": self.fence}
        for word, own in words.items():
            text = text.replace(word, own)
        return text.replace("?", self.value)


class Texts(dict[str, str]):
    """Statements in the words of one database, each rendered once."""

    def __init__(self, render: Callable[[str], str]) -> None:
        super().__init__()
        self._render = render

    def __missing__(self, text: str) -> str:
        """Render a statement that was not said before."""
        self[text] = rendered = self._render(text)
        return rendered


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE threads (
            pk {key}, thread_id {id} NOT NULL UNIQUE, number BIGINT NOT NULL, mail BIGINT NOT NULL,
            heard BIGINT NOT NULL, status TEXT NOT NULL, record TEXT NOT NULL, wake_at DOUBLE PRECISION, holder TEXT,
            fence BIGINT NOT NULL, lease_until DOUBLE PRECISION, created_at DOUBLE PRECISION NOT NULL,
            updated_at DOUBLE PRECISION NOT NULL)""",
        "CREATE INDEX threads_due ON threads (wake_at) WHERE wake_at IS NOT NULL",
        "CREATE INDEX threads_running ON threads (lease_until) WHERE status = 'running'",
        # not WITHOUT ROWID: bodies above 1 kB would take two to three times the space
        """CREATE TABLE log (
            thread BIGINT NOT NULL, number BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (thread, number))""",
        """CREATE TABLE rows (
            seq {key}, thread BIGINT NOT NULL, kind {id} NOT NULL, id {id} NOT NULL, came BIGINT NOT NULL,
            went BIGINT, body TEXT NOT NULL, UNIQUE (thread, kind, id))""",
        "CREATE INDEX rows_needed ON rows (thread) WHERE went IS NULL",
        """CREATE TABLE questions (
            seq {key}, thread BIGINT NOT NULL, id {id} NOT NULL UNIQUE, asked TEXT NOT NULL, status TEXT NOT NULL,
            reason TEXT NOT NULL, assignee TEXT, asked_at DOUBLE PRECISION NOT NULL, next_at DOUBLE PRECISION,
            expires_at DOUBLE PRECISION, taken BIGINT NOT NULL, ended TEXT, unused BIGINT NOT NULL, claimed_by TEXT,
            claimed_until DOUBLE PRECISION, came BIGINT NOT NULL, consumed BIGINT, went BIGINT)""",
        "CREATE INDEX questions_of ON questions (thread, went)",
        "CREATE INDEX questions_open ON questions (asked_at, id) WHERE status = 'open'",
        "CREATE INDEX questions_open_of ON questions (thread, asked_at, id) WHERE status = 'open'",
        "CREATE INDEX questions_for ON questions (assignee, asked_at, id) WHERE status = 'open'",
        "CREATE INDEX questions_why ON questions (reason, asked_at, id) WHERE status = 'open'",
        "CREATE INDEX questions_due ON questions (next_at) WHERE status = 'open' AND next_at IS NOT NULL",
    ),
)
"""The statements that make each version of the tables from the one before."""

VERSION = len(MIGRATIONS)


def create(say: Say, dialect: Dialect) -> None:
    """Make what all versions have: the format's version, still 0, and the counter of fences."""
    say("CREATE TABLE meta (name {id} PRIMARY KEY, value BIGINT NOT NULL)")
    say("INSERT INTO meta (name, value) VALUES ('jianmu', 0)")
    for text in dialect.fences:
        say(text)


def version(say: Say) -> int:
    """Return the version of the tables.

    Raises:
        CorruptRecordError: it cannot be read.
        SchemaVersionError: it is newer than this program.
    """
    found = say("SELECT value FROM meta WHERE name = 'jianmu'").fetchone()
    if found is None or type(found[0]) is not int:
        raise CorruptRecordError("the store's table 'meta' does not tell its version: it is not a store of jianmu")
    if found[0] > VERSION:
        raise SchemaVersionError(
            f"the store has version {found[0]} and this jianmu knows versions up to {VERSION}: install a newer jianmu;"
            " nothing was changed"
        )
    return found[0]


def migrate(say: Say) -> None:
    """Bring the tables to today's version, in the transaction at hand."""
    for texts in MIGRATIONS[version(say) :]:
        for text in texts:
            say(text)
    say("UPDATE meta SET value = ? WHERE name = 'jianmu' AND value < ?", (VERSION, VERSION))
