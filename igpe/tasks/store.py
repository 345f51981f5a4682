"""Outcomes kept in an SQLite file, to which is only added."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from igpe.core.errors import DataError
from igpe.core.files import read_json
from igpe.core.json_form import plain
from igpe.core.status import Status
from igpe.tasks.work import Outcome

MARK = int.from_bytes(b"igpe", "big")  # application_id: what SQLite files say they are
TABLE = """CREATE TABLE outcomes (
    series TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, seconds REAL NOT NULL,
    message TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (series, key)) WITHOUT ROWID"""
ADD = """INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    status = excluded.status, seconds = excluded.seconds, message = excluded.message,
    row = excluded.row WHERE status <> 'DONE'"""
GET = "SELECT status, seconds, message, row FROM outcomes WHERE series = ? AND key = ?"
DONE = "DONE"  # stands for the status None
CODE = "code"  # entry of the row of a failure: with which code it failed
KNOWN = {DONE, *Status.__members__}
DAMAGED = "The store's outcome of the item {} is damaged. Remove the file to do all items again."
WAIT = 30.0  # s, for another process that writes to the same file


class Store:
    """The outcomes of one series; several series live in one file.

    A committed outcome survives the end of this process, however sudden (a write-ahead log).

    series  what the outcomes depend on, as a hash
    code    a hash of the code that does the work: failures are kept for the same code only
    raises  DataError if the file cannot be made, or is no SQLite file
    """

    def __init__(self, path: str | Path, series: str, code: str = "") -> None:
        self._series, self._code = series, code
        try:
            self._file = sqlite3.connect(Path(path), timeout=WAIT)
            self._file.execute("PRAGMA trusted_schema = OFF")
            self._require_own()
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            with self._file:
                self._file.execute(f"PRAGMA application_id = {MARK}")
                self._file.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise DataError(
                f"The store '{path}' cannot be used ({error}); give the path of a new file in a "
                "folder that exists, or of one that igpe made as a store."
            ) from None

    def _require_own(self) -> None:
        """Raise ValueError for another program's file, before anything is written in it.

        A store holds one table and nothing else: no view that never ends, no trigger.
        """
        (mark,) = self._file.execute("PRAGMA application_id").fetchone()
        parts = self._file.execute("SELECT type, sql FROM sqlite_master LIMIT 3").fetchall()
        if mark not in (0, MARK) or parts not in ([], [("table", TABLE)]):
            raise ValueError("it belongs to another program, or was changed")

    def get(self, key: str, timeout: float | None) -> Outcome | None:
        """What became of an item; None if it is to be done (again).

        An item that timed out is done again where it may take longer now, one that failed where the
        code has changed since.

        raises DataError if the file cannot be read
        """
        found = self._run(GET, (self._series, key)).fetchone()
        if found is None:
            return None
        status, seconds, message, row = found
        if status not in KNOWN or not isinstance(seconds, float) or not isinstance(message, str):
            raise DataError(DAMAGED.format(key))
        if status == Status.TIMED_OUT.name and (timeout is None or seconds < timeout):
            return None
        try:
            kept = dict(read_json(row.encode()))
        except (ValueError, TypeError, AttributeError):
            raise DataError(DAMAGED.format(key)) from None
        if status == DONE:
            return Outcome(key, None, kept, seconds, message)
        if status != Status.TIMED_OUT.name and kept.get(CODE) != self._code:
            return None
        return Outcome(key, Status[status], {}, seconds, message)

    def add(self, found: Iterable[Outcome]) -> None:
        """Keep some more; one that is there and did not fail stays as it is.

        raises DataError if the file cannot be written
        """
        with self._file:
            for one in found:
                status = DONE if one.status is None else one.status.name
                kept = one.row if one.status is None else {CODE: self._code}
                row = json.dumps(plain(kept), allow_nan=False)
                given = (self._series, one.key, status, one.seconds, one.message, row)
                self._run(ADD, given)

    def close(self) -> None:
        """Leave one file, without its log."""
        self._file.close()

    def _run(self, words: str, given: tuple[object, ...]) -> sqlite3.Cursor:
        try:
            return self._file.execute(words, given)
        except sqlite3.Error as error:
            raise DataError(
                f"The store cannot be read or written any more ({error}); what was finished before "
                "is kept. Is the disk full, or the file open elsewhere?"
            ) from error
