"""Experiments one after the other: plans and their measurements in a file that lasts for days."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from igpe.core.arguments import shown
from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.core.json_form import Stored, made
from igpe.core.markup import Rows, Shown, counted, frame_rows
from igpe.planning.design import design
from igpe.planning.design_problem import Values
from igpe.planning.design_variables import ProblemWithoutData
from igpe.planning.plan import NONE, Plan
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.problem.tables import Data, numbers, read_table


@dataclass(frozen=True)
class SeriesRecord(Stored, name="series of plans", writer="igpe.planning.DesignSeries"):
    """Content of the file.

    plans   all plans
    sheets  for each plan with measurements, its table as a dict {column: values}
    """

    plans: tuple[Plan, ...] = ()
    sheets: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> Self:
        """Recreate a record; `stored["functions"]` contains the functions of time in its plans."""
        functions = stored.get("functions", NONE)
        plans = [{**plan, "functions": functions} for plan in stored["plans"]]
        record = made(cls, {**stored, "plans": plans})
        if len(record.sheets) > len(record.plans):
            raise ValueError(f"{len(record.sheets)} sheets of {len(record.plans)} plans")
        for sheet in record.sheets:
            pd.DataFrame(sheet)  # raises if columns have different lengths
        return record


class DesignSeries(Shown):
    """A series of plans and their measurements, stored in a file after each change.

    path       path of the file; if it exists, igpe continues the stored series
    problem    the problem with the measurements made before the series, or a `ProblemWithoutData`
    functions  a dict {input: function of time} for inputs given as functions; the file contains
               only the names of the functions
    raises     DataError if the file contains no series of plans, does not match the problem, or
               cannot be created
    """

    def __init__(
        self,
        path: str | Path,
        problem: Problem | ProblemWithoutData,
        *,
        functions: Mapping[str, Callable[[Any], Any]] = NONE,
    ) -> None:
        if not isinstance(problem, Problem | ProblemWithoutData):
            raise ProblemError(
                f"DesignSeries got a {type(problem).__name__}; expected an igpe.Problem or an "
                "igpe.planning.ProblemWithoutData."
            )
        if not isinstance(path, str | Path):
            raise ProblemError(f"The path of a DesignSeries is {shown(path)}; give a file name.")
        self.path, self._begin, self._record = Path(path), problem, SeriesRecord()
        self._stored: Mapping[str, Any] = {}  # content of the file
        if not self.path.exists():
            self._store(self._record)
            return
        self._stored = SeriesRecord.form().read(self.path)
        self._record = SeriesRecord.from_dict({**self._stored, "functions": functions})
        try:
            self._with(self._record.sheets)
        except IgpeError as error:
            raise DataError(
                f"The series in '{path}' does not match the problem. {error} Pass the problem with "
                "which the series started, or another path."
            ) from None

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, in the order of planning."""
        return self._record.plans

    @property
    def open_plan(self) -> Plan | None:
        """The last plan, if it has no measurements yet."""
        return self.plans[-1] if len(self.plans) > len(self._record.sheets) else None

    @property
    def problem(self) -> Problem | ProblemWithoutData:
        """The problem, including all measurements made so far."""
        return self._with(self._record.sheets)

    def _with(self, sheets: Sequence[Mapping[str, Any]]) -> Problem | ProblemWithoutData:
        """The problem with the measurements in these sheets."""
        pairs = zip(self.plans, sheets, strict=False)
        added = [e for plan, sheet in pairs for e in _measured(plan, pd.DataFrame(sheet))]
        begin = self._begin
        if not added:
            return begin
        if isinstance(begin, Problem):
            given = begin.given
            return Problem(**{**given, "experiments": [*given["experiments"], *added]})
        return begin.with_experiments(added)

    def plan(self, parameters: Values, **settings: Any) -> Plan:
        """Plan the next experiments by `igpe.design`, and store the plan.

        parameters  the parameter values at which igpe linearises the model
        settings    further arguments of `igpe.design`
        raises      ProblemError if the last plan has no measurements, DataError if the file was
                    changed elsewhere, and the errors of `igpe.design`
        """
        self._require_current()
        if self.open_plan is not None:
            raise ProblemError(
                f"Plan {len(self.plans)} has no measurements yet. Add them with add(data), or "
                "remove this plan with discard()."
            )
        planned = design(self.problem, parameters, **settings)
        self._store(replace(self._record, plans=(*self.plans, planned)))
        return planned

    def add(self, data: Data) -> None:
        """Store the measurements of the last plan.

        data    the completed `Plan.table()`, or its path. Experiments without rows are left out
        raises  ProblemError if there is no open plan, DataError if the table does not fit the plan
                or the file was changed elsewhere, and the errors of `Problem`
        """
        if self.open_plan is None:
            raise ProblemError(
                "Every plan of this series already has measurements. Call plan(...) before you "
                "add further measurements, or remove those of the last plan with discard()."
            )
        table = read_table(data)
        measured = [n for e in _measured(self.open_plan, table) for n in e.measured]
        used = dict.fromkeys(["time", *measured])
        sheet: dict[str, Any] = {n: numbers(table, n).tolist() for n in used}
        if "experiment" in table.columns:
            sheet["experiment"] = table["experiment"].astype(str).tolist()
        sheets = (*self._record.sheets, sheet)
        self._with(sheets)  # raises before anything is stored
        self._store(replace(self._record, sheets=sheets))

    def discard(self) -> None:
        """Remove the last plan's measurements from the file; if it has none, remove the plan."""
        record = self._record
        if self.open_plan is None:
            self._store(replace(record, sheets=record.sheets[:-1]))
        else:
            self._store(replace(record, plans=record.plans[:-1]))

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row for each plan: the names of its experiments, the criterion, its value
        before and after the plan, and whether the plan has measurements."""
        rows = [
            {
                "experiments": ", ".join(e.name for e in plan.experiments),
                "criterion": type(plan.criterion).__name__,
                "before": plan.before,
                "after": plan.after,
                "measured": k < len(self._record.sheets),
            }
            for k, plan in enumerate(self.plans)
        ]
        return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="plan"))

    def _store(self, record: SeriesRecord) -> None:
        self._require_current()
        record.to_json(self.path)
        self._record, self._stored = record, SeriesRecord.form().read(self.path)

    def _require_current(self) -> None:
        """Raise DataError if the file is not as this series read or wrote it last."""
        if self.path.exists() and SeriesRecord.form().read(self.path) != self._stored:
            raise DataError(
                f"The file '{self.path}' was changed by another DesignSeries or program. Open it "
                "again with igpe.planning.DesignSeries(path, problem)."
            )

    def _shown(self) -> tuple[list[Rows], list[str]]:
        count = len(self.plans)
        return [frame_rows(self.table)] * bool(count), [f"{counted(count, 'plan')} in {self.path}."]


def _measured(plan: Plan, table: pd.DataFrame) -> list[Experiment]:
    """The experiments of a plan that have rows in a table."""
    names = [e.name for e in plan.experiments]
    if "experiment" in table.columns and len(names) > 1:
        present = set(table["experiment"].astype(str))
        names = [n for n in names if n in present] or names
    return [plan.experiment(n, table) for n in names]
