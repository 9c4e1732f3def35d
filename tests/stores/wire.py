"""A wire between a store and PostgreSQL that is cut: before a statement got through, or before its reply did."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from psycopg import conninfo

READY = b"Z\x00\x00\x00\x05"  # the last message of a reply


class Wire:
    """Takes connections in a folder of its own, as the server does, and carries what is said.

    Args:
        dsn: the server's.

    Attributes:
        cuts: how often a connection was cut.
    """

    def __init__(self, dsn: str) -> None:
        # pytest's own folders may have names too long for a socket
        self._folder = TemporaryDirectory(prefix="wire")
        folder = Path(self._folder.name)
        parts = conninfo.conninfo_to_dict(dsn)
        self.dsn = conninfo.make_conninfo(dsn, host=str(folder))
        self.cuts = 0
        self._server = f"{parts['host']}/.s.PGSQL.5432"
        self._word: bytes | None = None
        self._then: Callable[[], object] | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._ends: list[socket.socket] = [self._listener]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._folder.cleanup()

    def cut_before(self, word: bytes) -> None:
        """Cut the next connection on which a word is said; the server does not hear it."""
        self._word, self._then = word, None

    def cut_after(self, word: bytes, then: Callable[[], object] = lambda: None) -> None:
        """Cut it when the server has done what it was told; the reply is lost. Before that, something happens."""
        self._word, self._then = word, then

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._ends += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while True:
                for end in select.select([client, server], [], [])[0]:
                    said = end.recv(1 << 20)
                    if not said or (end is client and self._is_cut(said, server)):
                        return
                    (server if end is client else client).sendall(said)

    def _is_cut(self, said: bytes, server: socket.socket) -> bool:
        """Whether the connection ends with this."""
        if self._word is None or self._word not in said:
            return False
        self._word, then = None, self._then
        self.cuts += 1
        if then is not None:
            server.sendall(said)
            while READY not in server.recv(1 << 20):
                pass
            then()
        return True
