"""Tables, conditions and inputs that cannot be used, and what must be said about them."""

from pathlib import Path

import bad_models as bad
import numpy as np
import pandas as pd
from spoiling import Cases, doubled_columns, pose, run, table, two_runs

from igpe.problem.experiment import Experiment, Unknown, read_experiments
from igpe.problem.inputs import linear_input, step_input

NAN, INF = np.nan, np.inf
UNREADABLE = Path(__file__).parent / "__pycache__" / "unreadable.csv"


def _unreadable() -> Path:
    UNREADABLE.parent.mkdir(exist_ok=True)
    UNREADABLE.write_bytes(b"\xff\xfe\x00time\x00\xff\n\xd8")
    return UNREADABLE


TABLES: Cases = {
    "no column time": (
        lambda: Experiment(pd.DataFrame({"t": [0.0], "A": [1.0]})),
        "no column 'time' | ['t', 'A'] | Rename",
    ),
    "time NaN": (lambda: run(table([0, NAN, 2])), "row 1 | nan | finite time"),
    "time infinite": (lambda: run(table([0, 1, INF])), "row 2 | inf | finite"),
    "values true or false": (
        lambda: run(table().assign(A=[True, False, True])),
        "True and False | not measurements | inputs=",
    ),
    "time text": (lambda: run(table(["0", "soon", "2"])), "Column 'time' | not numbers | soon"),
    "unsorted": (lambda: run(table([0, 2, 1])), "row 2 | 1 after 2 | Sort"),
    "long table": (
        lambda: run(table([0, 1, 0, 1], A=[1.0, 0.5, 0, 0.5], species=["A", "A", "B", "B"])),
        "row 2 | table.pivot(index='time', columns='species', values='A')",
    ),
    "duplicated": (
        lambda: run(table([0, 1, 1])),
        "Time 1 occurs more than once | rows 1 and 2 | replicates=True | read_experiments",
    ),
    "empty": (lambda: run(table([], A=[])), "no rows | at least one"),
    "no measured column": (
        lambda: Experiment(pd.DataFrame({"time": [0.0, 1.0]})),
        "no measured column | ['time'] | Add one",
    ),
    "text": (lambda: run(table(A=["1", "high", "0"])), "Column 'A' | high | only=[...]"),
    "infinite": (
        lambda: run(table(A=[1, INF, 0])),
        "Column 'A' | infinite | Leave missing values empty",
    ),
    "all NaN": (lambda: run(table(A=[NAN] * 3)), "'A' | no numbers | such as A = 0.0"),
    "one all NaN": (lambda: run(table(A=[1.0] * 3, B=[NAN] * 3)), "'B' | no numbers | only=['A']"),
    "duplicate columns": (lambda: run(doubled_columns()), "['A'] | more than once | its own name"),
    "duplicate time": (
        lambda: run(pd.concat([table(), table()[["time"]]], axis="columns")),
        "['time'] | more than once",
    ),
    "missing file": (
        lambda: Experiment("nowhere.csv"),
        "No such file: 'nowhere.csv' | current folder",
    ),
    "kind of file": (lambda: Experiment("data.json"), "'data.json' | .csv | .xlsx"),
    "unreadable file": (
        lambda: Experiment(_unreadable()),
        "unreadable.csv | could not be read as a table",
    ),
    "not a table": (lambda: Experiment({"time": [0.0]}), "dict | DataFrame | .csv"),  # type: ignore[arg-type]
    "only unknown": (lambda: run(only=["Z"]), "['Z'] are not in the table | ['time', 'A']"),
    "only text": (lambda: run(only="A"), "only='A' | only=['A']"),
    "only the time": (lambda: run(only=["time"]), "only=['time'] | leave out the time"),
    "only twice": (lambda: run(only=["A", "A"]), "only=['A', 'A'] | once"),
    "dates": (
        lambda: run(table(pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]))),
        "Column 'time' holds datetime64 | hours since the start",
    ),
    "durations": (
        lambda: run(table(pd.to_timedelta([0, 1, 2], unit="h"))),
        "Column 'time' holds timedelta64 | give numbers",
    ),
    "complex": (lambda: run(table(A=[1j, 1, 1])), "'A' holds complex | numbers"),
    "numbered columns": (lambda: run(table().rename(columns={"A": 1})), "[1] | not strings"),
    "several experiments": (lambda: run(two_runs()), "several experiments | igpe.read_experiments"),
    "no column experiment": (
        lambda: read_experiments(table()),
        "no column 'experiment' | ['time', 'A'] | igpe.Experiment",
    ),
    "experiment without name": (
        lambda: read_experiments(table().assign(experiment=["a", NAN, "b"])),
        "'experiment' is empty in row 1 | counted from 0 | name of its experiment",
    ),
    "start of too few experiments": (
        lambda: read_experiments(two_runs(), start={"one": {"A": 1.0}}),
        "`start` has no entry for experiment 'two' | ['one', 'two']",
    ),
    "events of an unknown experiment": (
        lambda: read_experiments(two_runs(), events={"one": [], "two": [], "c": []}),
        "`events` has an entry for 'c' | no experiment 'c' | ['one', 'two']",
    ),
    "column unknown to the model": (
        lambda: pose(experiments=run(table(A=[1, 1, 1], Q=[1, 1, 1]))),
        "['Q'] | no time-dependent quantities | 'A', 'B', 'feed', 'C' | Rename",
    ),
    "column of an input": (
        lambda: pose(experiments=run(table(A=[1, 1, 1], feed=[1, 1, 1]))),
        "['feed'] are Params of the model | Experiment(inputs=['feed'])",
    ),
    "column of standard deviations": (
        lambda: pose(experiments=run(table(A=[1, 1, 1], sdA=[1, 1, 1]))),
        "['sdA'] | no time-dependent quantities | pass sigma={'A': 'sdA'}",
    ),
}

CONDITIONS: Cases = {
    "sigma zero": (lambda: run(sigma=0), "`sigma` of 'A' is 0 | positive"),
    "sigma negative": (lambda: run(sigma={"A": -1}), "'A' is -1 | positive"),
    "sigma NaN": (lambda: run(sigma={"A": NAN}), "'A' is nan | Leave out `sigma`"),
    "sigma NaN in a row": (lambda: run(sigma={"A": [1, NAN, 1]}), "'A' is nan | positive"),
    "sigma text": (lambda: run(sigma="small"), "sigma | 'small' | number"),
    "sigma of text entries": (
        lambda: run(table(A=[1, 1, 1], s=["a", "b", "c"]), sigma={"A": "s"}),
        "'s' | not numbers",
    ),
    "sigma table": (
        lambda: run(sigma=pd.DataFrame({"A": [1, 1, 1]})),
        "`sigma` is a DataFrame of the shape (3, 1) | number",
    ),
    "sigma missing": (
        lambda: run(table(A=[1, 1, 1], B=[1, 1, 1]), sigma={"A": 1}),
        "contains ['A'] but not 'B' | all columns",
    ),
    "sigma of wrong length": (lambda: run(sigma={"A": [1, 1]}), "`sigma` of 'A' | (2,) | 3 rows"),
    "sigma naming no column": (
        lambda: run(sigma={"A": "s"}),
        "'s' | not among the columns of the table | ['time', 'A']",
    ),
    "sigma as a formula": (
        lambda: run(sigma={"A": "0.05*A"}),
        "'0.05*A' | igpe.Noise(relative=0.05) | igpe.EstimatedSigma('sd')",
    ),
    "sigma as a function": (
        lambda: run(sigma={"A": lambda m, t: 0.05 * m.A[t]}),  # type: ignore[dict-item]
        "expected a number | igpe.Noise(relative=0.05) | igpe.EstimatedSigma('sd')",
    ),
    "start after measurement": (
        lambda: run(start_time=1.0),
        "`start_time` is 1 | first measurement is at 0 | no greater than 0",
    ),
    "start time ambiguous": (
        lambda: run(table([5, 6, 7])),
        "from 5 to 7 | does not know | start_time=0.0 | start_time=5",
    ),
    "start time NaN": (lambda: run(start_time=NAN), "`start_time` is nan"),
    "start NaN": (lambda: run(start={"A": NAN}), "'A' is nan | Unknown(lower, upper)"),
    "start a list": (lambda: run(start={"A": [1]}), "'A' is [1] | finite number"),
    "start a word": (lambda: run(start="steady"), "steady=True"),
    "steady a word": (lambda: run(steady="steady"), "'steady' | steady=True"),
    "unknown crossed": (lambda: Unknown(2, 1), "[2, 1] | lower < upper"),
    "unknown infinite": (lambda: Unknown(0, INF), "[0, inf] | finite bounds"),
    "guess outside": (lambda: Unknown(0, 1, guess=3), "guess | 3 | [0, 1]"),
    "input unsorted": (lambda: linear_input([0, 2, 1], [1, 1, 1]), "time 1 is | Sort"),
    "input twice": (lambda: step_input([0, 1, 1], [1, 1, 1]), "time 1 is | remove duplicates"),
    "input table NaN": (lambda: linear_input([0, 1], [1, NAN]), "NaN or infinite | fill"),
    "input of wrong length": (
        lambda: step_input([0, 1], [1, 1, 1]),
        "is 2, but the number of values is 3 | one value for each time",
    ),
    "input NaN": (lambda: run(inputs={"feed": NAN}), "'feed' is nan | finite"),
    "input of wrong type": (
        lambda: run(inputs={"feed": [1, 2]}),
        "'feed' is a list | igpe.linear_input | igpe.step_input",
    ),
    "input Series unsorted": (
        lambda: run(inputs={"feed": pd.Series([1.0, 2.0], index=[1.0, 0.0])}),
        "'feed' | Sort",
    ),
    "input Series by rows": (
        lambda: run(inputs={"feed": pd.Series([1.0, 2.0, 4.0, 3.0])}),
        "'feed' | is 0, 1, 2, ... | set_index('time')['feed']",
    ),
    "input Series after the experiment": (
        lambda: run(inputs={"feed": pd.Series([1.0, 2.0], index=[50.0, 60.0])}),
        "'feed' | from time 50 to 60 | igpe.linear_input",
    ),
    "input DataFrame without time": (
        lambda: run(inputs={"feed": pd.DataFrame({"t": [0.0, 1.0], "feed": [1.0, 2.0]})}),
        "'feed' | ['t', 'feed'] | 'time'",
    ),
    "input Series by text": (
        lambda: run(inputs={"feed": pd.Series([1.0, 2.0], index=["a", "b"])}),
        "'feed' | times",
    ),
    "input Series by dates": (
        lambda: run(inputs={"feed": pd.Series([1.0], index=pd.to_datetime(["2020-01-01"]))}),
        "'feed' | datetime64 | times",
    ),
    "input table of text": (lambda: step_input(["a"], [1]), "not numbers | 'a'"),
    "unit a number": (lambda: pose(experiments=run(units={"A": 3})), "'A' in '3' | Give a unit"),
    "unit unknown": (
        lambda: pose(experiments=run(units={"A": "moles_of_joy"})),
        "'A' in 'moles_of_joy' | mol | Give a unit",
    ),
    "unit not fitting": (
        lambda: pose(experiments=run(units={"A": "kg"})),
        "'A' in 'kg' | the model uses 'mol'",
    ),
    "unit the model lacks": (
        lambda: pose(experiments=run(table(B=[1, 1, 1]), units={"B": "kg"})),
        "'B' in 'kg' | no unit | give the model's variable its unit",
    ),
    "unit of no column": (
        lambda: pose(experiments=run(units={"Q": "kg"})),
        "'Q' | the measured columns are ('A',)",
    ),
}
UNFIT: Cases = {
    "start of a stranger": (
        lambda: pose(experiments=run(start={"A": 1, "Z": 1})),
        "['Z'] | the states are ['A']",
    ),
    "no equation of a state": (
        lambda: pose(bad.spoilt(bad.no_equation_for_A)),
        "the states are [] | No equation uses the derivative of A",
    ),
    "start missing": (
        lambda: pose(experiments=run(start={})),
        "['A'] have no start value | start={'A' | igpe.Unknown",
    ),
    "start naming no parameter": (
        lambda: pose(experiments=run(start={"A": "A0"})),
        "['A0'] | not among the parameters ['k']",
    ),
    "input unknown": (
        lambda: pose(experiments=run(inputs={"heat": 1})),
        "no input 'heat' | 'feed'",
    ),
    "input and parameter": (
        lambda: pose(experiments=run(inputs={"k": 1})),
        "'k' | input | parameter",
    ),
    "input a state": (
        lambda: pose(experiments=run(inputs={"A": 1})),
        "'A' | a state or a measured column | Keep only one",
    ),
    "input and measured": (
        lambda: pose(experiments=run(table(A=[1, 1, 1], feed=[1, 1, 1]), inputs={"feed": 1})),
        "'feed' | a state or a measured column | Keep only one",
    ),
}
