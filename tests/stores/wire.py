"""A wire between a store and PostgreSQL that is cut: before a statement got through, or before its reply did."""

from __future__ import annotations

import contextlib
import selectors
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
        self._is_heard = False
        self._then: Callable[[], object] = lambda: None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # each thread closes what it reads from: a number that is closed under it may be another file's already
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._folder.cleanup()

    def _start(self, work: Callable[..., None], *ends: socket.socket) -> None:
        thread = threading.Thread(target=work, args=ends, daemon=True)
        self._threads.append(thread)
        thread.start()

    def cut_before(self, word: bytes, then: Callable[[], object] = lambda: None) -> None:
        """Cut the next connection on which a word is said; the server does not hear it. First something happens."""
        self._word, self._then, self._is_heard = word, then, False

    def cut_after(self, word: bytes, then: Callable[[], object] = lambda: None) -> None:
        """Cut it when the server has done what it was told; the reply is lost. Before that, something happens."""
        self._word, self._then, self._is_heard = word, then, True

    def _accept(self) -> None:
        with contextlib.suppress(OSError), self._listener:
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._ends += [client, server]
                self._start(self._carry, client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            while True:
                for end in [key.fileobj for key, _ in ready.select()]:
                    assert isinstance(end, socket.socket)
                    said = end.recv(1 << 20)
                    if not said or (end is client and self._is_cut(said, server)):
                        return
                    (server if end is client else client).sendall(said)

    def _is_cut(self, said: bytes, server: socket.socket) -> bool:
        """Whether the connection ends with this."""
        if self._word is None or self._word not in said:
            return False
        self._word = None
        self.cuts += 1
        if self._is_heard:
            server.sendall(said)
            while (reply := server.recv(1 << 20)) and READY not in reply:
                pass
        self._then()
        return True
