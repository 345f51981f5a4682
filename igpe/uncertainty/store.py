"""Finished replications kept in an SQLite file, to which is only added."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from igpe.errors import DataError

TABLE = """CREATE TABLE IF NOT EXISTS replications (
    series TEXT NOT NULL, number INTEGER NOT NULL, status TEXT NOT NULL, objective REAL NOT NULL,
    parameters TEXT NOT NULL, PRIMARY KEY (series, number))"""
WAIT = 30.0  # s, for another process that writes to the same file


class Replication(NamedTuple):
    """One refit: its number, how it ended, sum of squares and unknowns."""

    number: int
    status: str
    objective: float
    parameters: Mapping[str, float]


class Store:
    """The replications of one series; several series live in one file.

    series  what the replications depend on, as a hash
    raises  DataError if the file cannot be made, or is no SQLite file
    """

    def __init__(self, path: str | Path, series: str) -> None:
        self.path, self.series = Path(path), series
        try:
            with closing(self._open()) as file, file:
                file.execute(TABLE)
        except sqlite3.Error as error:
            raise DataError(
                f"The store '{path}' cannot be used ({error}); give the path of a new file in a "
                "folder that exists, or of one that igpe.bootstrap made."
            ) from None

    def finished(self) -> dict[int, Replication]:
        """What is there already, by number."""
        query = "SELECT number, status, objective, parameters FROM replications WHERE series = ?"
        with closing(self._open()) as file:
            rows = file.execute(query, (self.series,)).fetchall()
        return {n: Replication(n, status, cost, json.loads(x)) for n, status, cost, x in rows}

    def add(self, found: Iterable[Replication]) -> None:
        """Keep some more; a number that is there stays as it is."""
        rows = [
            (self.series, r.number, r.status, r.objective, json.dumps(dict(r.parameters)))
            for r in found
        ]
        with closing(self._open()) as file, file:
            file.executemany("INSERT OR IGNORE INTO replications VALUES (?, ?, ?, ?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=WAIT)
