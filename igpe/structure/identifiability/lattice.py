"""Which powers follow from others by multiplication and division alone."""

from collections.abc import Iterable, Sequence


class Lattice:
    """All whole combinations of some vectors of whole numbers."""

    def __init__(self, vectors: Iterable[Sequence[int]]) -> None:
        self.rows: list[list[int]] = []  # each begins later than the one before, with a positive
        for vector in vectors:
            self._insert(list(vector))

    def __contains__(self, vector: Sequence[int]) -> bool:
        rest = list(vector)
        for row in self.rows:
            lead = _lead(row)
            if rest[lead] % row[lead]:
                return False
            rest = _minus(rest, rest[lead] // row[lead], row)
        return not any(rest)

    def _insert(self, vector: list[int]) -> None:
        """Euclid's algorithm with every row that begins where the vector does."""
        while any(vector):
            lead = _lead(vector)
            place = next((i for i, row in enumerate(self.rows) if _lead(row) >= lead), None)
            if place is None or _lead(self.rows[place]) > lead:
                whole = vector if vector[lead] > 0 else [-v for v in vector]
                self.rows.insert(len(self.rows) if place is None else place, whole)
                return
            row = self.rows[place]
            while vector[lead]:
                row, vector = vector, _minus(row, row[lead] // vector[lead], vector)
            self.rows[place] = row if row[lead] > 0 else [-v for v in row]


def _lead(vector: Sequence[int]) -> int:
    return next(j for j, v in enumerate(vector) if v)


def _minus(vector: Sequence[int], factor: int, other: Sequence[int]) -> list[int]:
    return [a - factor * b for a, b in zip(vector, other, strict=True)]
