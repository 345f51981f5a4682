"""Data reconciliation: values by textbook formulas, gross errors by name, what is not checked."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag, null_space
from scipy.stats import binom, chi2

import igpe
from igpe import kinetics
from igpe.estimation import reconcile
from igpe.estimation.reconciliation import conserved, elements, read_balances

NODES = ["feed + recycle - mixed = 0", "mixed = light + heavy", "heavy - recycle - purge = 0"]
FLOWS = {"feed": 100, "recycle": 30, "mixed": 130, "light": 55, "heavy": 75, "purge": 45}
CARBON = {"carbon": "6*glucose + 2*ethanol + CO2 = constant"}


def plant(seed=0, times=6, sigma=1.0, **off):
    """Flows of a small plant at changing loads; off: quantity -> error of each time."""
    rng = np.random.default_rng(seed)
    load = 1 + 0.3 * np.sin(np.arange(times))
    table = pd.DataFrame({
        n: v * load + sigma * rng.standard_normal(times) for n, v in FLOWS.items()
    })
    return table.assign(time=np.arange(1.0, times + 1), **{n: table[n] + v for n, v in off.items()})


def experiment(table, **settings):
    return igpe.Experiment(table, **{"start_time": 0.0, "sigma": 1.0} | settings)


def broth(seed=0, sigma=0.1, **off):
    """A fermentation in which carbon is kept; off: quantity -> factor."""
    t, rng = np.arange(0.0, 10.0), np.random.default_rng(seed)
    glucose = 10 * np.exp(-0.3 * t)
    ethanol = 1.9 * (10 - glucose)
    true = {"glucose": glucose, "ethanol": ethanol, "CO2": 6 * (10 - glucose) - 2 * ethanol}
    measured = {n: v * off.get(n, 1.0) + sigma * rng.standard_normal(10) for n, v in true.items()}
    return pd.DataFrame({"time": t} | measured)


def only(found):
    """The suspects of the only gross error: kind, quantity, time."""
    (error,) = found.gross_errors
    return {(s.kind, s.name, s.time) for s in error.suspects}


def test_flows_are_reconciled_as_in_textbooks():
    """x = y - S A' (A S A')^-1 A y, with the covariance S - S A' (A S A')^-1 A S."""
    table = plant(times=1)
    sigma = dict(zip(FLOWS, (1.0, 0.5, 2.0, 1.0, 0.8, 0.3), strict=True))
    found = reconcile(experiment(table, sigma=sigma), NODES)
    rows = found.table.set_index("name")
    A = np.array([[1, 1, -1, 0, 0, 0], [0, 0, 1, -1, -1, 0], [0, -1, 0, 0, 1, -1]])
    S, y = np.diag(np.array(list(sigma.values())) ** 2), table[list(FLOWS)].to_numpy()[0]
    gain = S @ A.T @ np.linalg.inv(A @ S @ A.T)
    assert rows["reconciled"].to_numpy() == pytest.approx(y - gain @ A @ y)
    deviation = np.sqrt(np.diag(S - gain @ A @ S))
    assert rows["standard_deviation"].to_numpy() == pytest.approx(deviation)
    r = A @ y
    assert found.chi_squared == pytest.approx(r @ np.linalg.solve(A @ S @ A.T, r))
    assert (found.degrees, found.p) == (3, pytest.approx(chi2.sf(found.chi_squared, 3)))


@pytest.mark.parametrize("soft", [0.0, 0.7])
def test_unknown_totals_and_missing_values_as_by_least_squares(soft):
    """All true values, totals and errors of balances at once, with exact balances eliminated."""
    table = broth()
    table.loc[2, "CO2"] = table.loc[5, "glucose"] = np.nan
    names = ["glucose", "ethanol", "CO2"]
    given = {"carbon": soft} if soft else {}
    found = reconcile(experiment(table, sigma=0.1), CARBON, soft=given)
    n, A = len(table), np.array([[6.0, 2.0, 1.0]])
    # unknowns: values of all cells, errors of balances, the total
    rules = np.hstack([block_diag(*[A] * n), -np.eye(n), -np.ones((n, 1))])
    if not soft:
        rules = np.vstack([rules, np.eye(3 * n + n + 1)[3 * n : 4 * n]])
    free, y = null_space(rules), table[names].to_numpy().ravel()
    weight = np.diag(np.where(np.isnan(y), 0, 10.0))
    rows = np.hstack([weight, np.zeros((3 * n, n + 1))])
    if soft:
        rows = np.vstack([rows, np.eye(4 * n + 1)[3 * n : 4 * n] / soft])
    data = np.append(weight @ np.nan_to_num(y), np.zeros(len(rows) - 3 * n))
    solved = np.linalg.lstsq(rows @ free, data, rcond=None)[0]
    covariance = free @ np.linalg.inv((rows @ free).T @ rows @ free) @ free.T
    values = found.table
    assert values["reconciled"].to_numpy() == pytest.approx((free @ solved)[: 3 * n])
    deviation = np.sqrt(np.diag(covariance))[: 3 * n]
    assert values["standard_deviation"].to_numpy() == pytest.approx(deviation)
    assert found.degrees == n - 3 if not soft else n - 3


def test_a_value_that_is_off_is_named_and_left_out():
    run = experiment(plant(heavy=[0, 0, 0, 12, 0, 0]))
    found = reconcile(run, NODES)
    assert only(found) == {("value", "heavy", 4.0)}
    (suspect,) = found.gross_errors[0].suspects
    assert abs(suspect.size - 12) < 4 * suspect.deviation
    assert found.p < 1e-3 < found.rest
    (cleaned,) = found.experiments
    assert np.isnan(cleaned.table().loc[4.0, "heavy"])
    assert len(cleaned.measurements.value) == len(run.measurements.value) - 1
    assert cleaned.source != run.source
    assert "heavy at time 4" in str(found)
    assert found._repr_html_()
    # beside the error the value follows from the balances
    row = found.table.query("name == 'heavy' and time == 4")
    assert abs(row["reconciled"].item() - row["measured"].item()) > 5


def test_two_errors_are_named():
    found = reconcile(experiment(plant(heavy=[0, 0, 0, 15, 0, 0], feed=-8.0)), NODES)
    named = [{(s.kind, s.name) for s in e.suspects} for e in found.gross_errors]
    assert len(named) == 2
    assert {("value", "heavy")} in named
    assert any(("offset", "feed") in own for own in named)


def test_what_the_balances_cannot_tell_apart_is_named_together():
    table = pd.DataFrame({"time": [1.0], "a": [1.0], "b": [2.0], "c": [9.0], "d": [1.0]})
    found = reconcile(experiment(table), ["a + b - c = 0"])
    assert only(found) == {("value", n, 1.0) for n in "abc"}
    assert str(found.gross_errors[0]).startswith("one of ")
    rows = found.table.set_index("name")
    assert rows["reconciled"].isna().to_dict() == {"a": True, "b": True, "c": True, "d": False}
    assert found.experiments[0].measurements.value.tolist() == [1.0]
    assert "for 3 of the measurements with gross errors" in str(found)


def test_what_the_data_can_hardly_tell_apart_is_named_together():
    table = pd.DataFrame({"time": [1.0], "a": [1.0], "b": [2.0], "c": [13.0]})
    found = reconcile(experiment(table), ["a + b = c", "a = 1"], soft={"a = 1": 10.0})
    assert only(found) == {("value", n, 1.0) for n in "abc"}


def test_two_missing_values_of_one_balance_stay_open():
    table = pd.DataFrame({"time": [1.0], "c": [9.0], "d": [4.0]})
    balances = ["a + b - c = 0", "c - d - e = 0"]
    rows = reconcile(experiment(table), balances, unmeasured=["a", "b", "e"]).table
    rows = rows.set_index("name")["reconciled"]
    assert rows[["c", "d", "e"]].tolist() == pytest.approx([9.0, 4.0, 5.0])
    assert rows[["a", "b"]].isna().all()


def test_an_instrument_with_a_wrong_factor_is_named_in_one_experiment_or_all():
    runs = [experiment(broth(i, ethanol=1.3), sigma=0.1, name=f"r{i}") for i in (1, 2)]
    found = reconcile(runs, CARBON)
    best = found.gross_errors[0].suspects[0]
    assert (best.kind, best.name, best.experiment) == ("factor", "ethanol", None)
    assert best.size == pytest.approx(0.3, abs=0.05)
    assert "all values in all experiments (+" in str(best)
    runs[0] = experiment(broth(1), sigma=0.1, name="r1")
    best = reconcile(runs, CARBON).gross_errors[0].suspects[0]
    assert (best.kind, best.name, best.experiment) == ("factor", "ethanol", "r2")


def test_what_is_not_checked_is_said():
    table = broth().assign(pH=7.0)
    said = str(reconcile(experiment(table, sigma=0.1), CARBON))
    assert "igpe cannot check pH, because no balance contains these measurements." in said
    assert (
        "a constant offset in glucose, ethanol and CO2, because it would not change any balance"
        in said
    )
    assert "none at the 1 % significance level" in said
    found = reconcile(experiment(table, sigma=0.1), CARBON)
    assert found.table.groupby("name")["detectable"].count().to_dict()["pH"] == 0
    unclear = {"carbon": "6*glucose + 2*ethanol + CO2 + biomass = constant"}
    said = reconcile(experiment(table, sigma=0.1), unclear, unmeasured="biomass")
    assert (
        "check glucose, ethanol and CO2, because the balances contain too many unknown values"
        in str(said)
    )
    assert said.degrees == 0
    assert said.table.query("name == 'glucose'")["reconciled"].notna().all()


@pytest.mark.slow
def test_an_error_of_the_detectable_size_is_found_in_nine_of_ten():
    """By the power of the noncentral chi-squared at the limit."""
    found = reconcile(experiment(plant()), NODES)
    least = found.table.query("name == 'heavy' and time == 4")["detectable"].item()
    named = 0
    for seed in range(100):
        table = plant(seed, heavy=least * np.eye(6)[3])
        suspects = [s for e in reconcile(experiment(table), NODES).gross_errors for s in e.suspects]
        named += any((s.name, s.time) == ("heavy", 4.0) for s in suspects)
    assert binom.ppf(1e-4, 100, 0.88) <= named


@pytest.mark.statistical
def test_clean_data_have_an_error_named_as_often_as_the_level_says():
    level, draws = 0.2, 400
    alarms = sum(
        bool(reconcile(experiment(plant(seed)), NODES, level=level).gross_errors)
        for seed in range(draws)
    )
    assert binom.ppf(1e-4, draws, level / 2) <= alarms <= binom.ppf(1 - 1e-4, draws, level)


def test_a_measured_value_stays_known_where_unmeasured_ones_are_not():
    """Totals of hydrogen and oxygen alone are open, as water is not measured."""
    table = broth().assign(O2=np.where(np.arange(10) == 8, np.nan, 5.0))
    formulas = {"glucose": "C6H12O6", "ethanol": "C2H6O", "CO2": "CO2", "O2": "O2", "water": "H2O"}
    found = reconcile(experiment(table, sigma=0.5), formulas=formulas, unmeasured=["water"])
    rows = found.table[found.table["measured"].notna()]
    assert not found.gross_errors
    assert rows["reconciled"].notna().all()
    assert found.table.query("name == 'water'")["reconciled"].isna().all()


def test_replicates_count_as_their_mean_and_limits_as_missing():
    table = pd.concat([plant(1), plant(2)]).sort_values("time")
    found = reconcile(experiment(table, replicates=True), NODES).table
    assert found["measured"].to_numpy() == pytest.approx(
        ((plant(1) + plant(2)) / 2)[list(FLOWS)].to_numpy().ravel()
    )
    assert found["sigma"].to_numpy() == pytest.approx(1 / np.sqrt(2))
    below = plant(1).astype({"purge": object})
    below.loc[2, "purge"] = "<50"
    sigma = dict.fromkeys(FLOWS, 1.0) | {"purge": igpe.losses.Censored(1.0)}
    row = reconcile(experiment(below, sigma=sigma), NODES).table.query(
        "name == 'purge' & time == 3"
    )
    assert np.isnan(row["measured"].item())
    assert row["reconciled"].item() == pytest.approx(45 * (1 + 0.3 * np.sin(2)), abs=5)


def test_relative_deviations_are_taken_at_reconciled_values():
    noise = igpe.Noise(absolute=0.1, relative=0.02)
    found = reconcile(experiment(plant(), sigma=noise), NODES).table
    at = noise.deviation(found["reconciled"].to_numpy())
    assert found["sigma"].to_numpy() == pytest.approx(at, rel=1e-3)


REACTOR = kinetics.Batch(
    [kinetics.Reaction("2 A -> B", kinetics.MassAction(kinetics.Arrhenius("k", "E", 330.0)))],
    bounds={"k": (1e-3, 1), "E": (2e4, 2e5)},
)


def dimer(seed=0, start=None, **settings):
    t = np.arange(1.0, 9.0)
    a, rng = 1 / (1 + 0.4 * t), np.random.default_rng(seed)
    values = {n: v + 0.01 * rng.standard_normal(8) for n, v in {"A": a, "B": (1 - a) / 2}.items()}
    run = {"start": start or {"A": 1.0, "B": 0.0}, "inputs": {"T": 330.0}, "sigma": 0.01}
    return igpe.Problem(
        REACTOR,
        parameters=REACTOR.parameters,
        experiments=[experiment(pd.DataFrame({"time": t} | values), **run | settings)],
    )


def test_the_model_s_conserved_sums_are_balances():
    (balance,) = conserved(dimer(), 0)
    assert balance.terms["B"] == pytest.approx(2 * balance.terms["A"])
    assert balance.total == pytest.approx(balance.terms["A"])
    assert reconcile(dimer()).degrees == 8
    open_start = dimer(start={"A": igpe.Unknown(0, 2), "B": 0.0})
    assert np.isnan(conserved(open_start, 0)[0].total)
    assert reconcile(open_start).degrees == 7
    dosed = dimer(events=[igpe.Event(at=2.5, add={"A": 0.5})])
    assert conserved(dosed, 0) == []
    with pytest.raises(igpe.errors.ProblemError, match=r"There is no balance"):
        reconcile(dosed)


def test_reconciled_values_change_no_estimate_and_gross_errors_do():
    """x - y is orthogonal, weighted by 1/S, to all that obeys the balances, as the model does."""
    problem = dimer().fixing({"E": 5e4})
    wide = reconcile(problem).table.pivot_table(index="time", columns="name", values="reconciled")
    plain = igpe.SingleShooting().estimate(problem, {"k": 0.2})
    again = igpe.SingleShooting().estimate(problem.with_data(wide), {"k": 0.2})
    assert again.parameters["k"] == pytest.approx(plain.parameters["k"], rel=1e-6)
    assert again.objective < plain.objective
    table = problem.experiments[0].table().reset_index()
    table.loc[2, "B"] += 0.3
    spoiled = problem.with_data(table)
    found = reconcile(spoiled)
    assert ("value", "B", 3.0) in only(found)
    cleaned = igpe.Problem(
        REACTOR, parameters=REACTOR.parameters, experiments=found.experiments
    ).fixing({"E": 5e4})
    best = igpe.SingleShooting().estimate(cleaned, {"k": 0.2}).parameters["k"]
    worse = igpe.SingleShooting().estimate(spoiled, {"k": 0.2}).parameters["k"]
    assert abs(best - 0.2) < abs(worse - 0.2)


def test_balances_that_follow_from_others_say_nothing_new():
    more = [*NODES, "feed = light + purge"]
    found, same = (reconcile(experiment(plant()), own) for own in (NODES, more))
    assert same.chi_squared == pytest.approx(found.chi_squared)
    assert same.degrees == found.degrees
    with pytest.raises(
        igpe.errors.ProblemError, match=r"'feed = light \+ purge \+ 5'\] contradict"
    ):
        reconcile(experiment(plant()), [*NODES, "feed = light + purge + 5"])


@pytest.mark.parametrize(
    ("formula", "counts"),
    [
        ("C6H12O6", {"C": 6, "H": 12, "O": 6}),
        ("CH1.8O0.5N0.2", {"C": 1, "H": 1.8, "O": 0.5, "N": 0.2}),
        ("Ca(OH)2", {"Ca": 1, "O": 2, "H": 2}),
        ("(NH4)2SO4", {"N": 2, "H": 8, "S": 1, "O": 4}),
        ("CH3(CH2(CO)2)3H", {"C": 10, "H": 10, "O": 6}),
    ],
)
def test_formulas_are_counted(formula, counts):
    assert elements(formula) == counts


@pytest.mark.parametrize("formula", ["", "glucose", "C6H12O6)", "(CH2", "C-6", "2", "NaCl.", None])
def test_what_is_no_formula_is_refused(formula):
    with pytest.raises(igpe.errors.ProblemError, match=r"cannot be read. Write each element"):
        elements(formula)


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("CuSO4.5H2O", r"contains '.5H2O'.*'CuSO4\(H2O\)5'"),
        ("MeOH", r"\['Me'\], which are not chemical elements"),
        ("NACL", r"\['A', 'L'\], which are not"),
    ],
)
def test_formulas_that_would_be_misread_are_refused(formula, says):
    with pytest.raises(igpe.errors.ProblemError, match=says):
        elements(formula)


@pytest.mark.parametrize(
    ("text", "terms", "total"),
    [
        ("A + 2 B - 0.5*C = const", {"A": 1, "B": 2, "C": -0.5}, np.nan),
        ("2c[A] + A out = 3 - 1e-1*B", {"c[A]": 2, "A out": 1, "B": 0.1}, 3),
        ("-A = B + 1", {"A": -1, "B": -1}, 1),
        ("A + A = A", {"A": 1}, 0),
    ],
)
def test_balances_are_read(text, terms, total):
    (found,) = read_balances([text], ["A", "B", "C", "c[A]", "A out"])
    assert found.terms == pytest.approx(terms)
    assert found.total == pytest.approx(total, nan_ok=True)


@pytest.mark.parametrize(
    ("balances", "said"),
    [
        ("A = 0", "expected a list or a mapping of equations"),
        (["A + B"], "is not an equation"),
        (["feed + recycle ="], "has an empty side"),
        (["feed*recycle = 0"], r"cannot be read at '\*recycle'"),
        (["feed + recycl = 0"], r"Did you mean 'recycle'\?.*unmeasured=\['recycl'\]"),
        (["feeds = 0"], r"Did you mean 'feed'\?"),
        (["1 = constant"], "contains no quantity"),
        ([], "There is no balance"),
    ],
)
def test_what_is_no_balance_is_refused(balances, said):
    with pytest.raises(igpe.errors.ProblemError, match=said):
        reconcile(experiment(plant()), balances)


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        ({"sigma": None}, {}, r"no numeric standard deviations.*sigma=0\.1"),
        ({"correlation": igpe.losses.AR1(0.5)}, {}, r"needs independent errors"),
        ({"sigma": "equal"}, {}, r"no numeric standard deviations"),
        ({}, {"level": 1.0}, r"level is 1; reconcile needs 0 < level < 1"),
        ({}, {"soft": {"carbon": 1.0}}, r"`soft` has \{'carbon': 1.0\}; expected positive"),
        ({}, {"soft": {NODES[0]: 0.0}}, r"expected positive standard deviations"),
        ({}, {"formulas": {"fed": "C"}}, r"`formulas` contains \['fed'\].*Did you mean 'feed'\?"),
        ({}, {"formulas": ["C"]}, r"expected a mapping with names as keys, for example formulas="),
    ],
)
def test_refusals(arguments, settings, said):
    with pytest.raises(igpe.errors.IgpeError, match=said):
        reconcile(experiment(plant(), **arguments), NODES, **settings)


def test_what_is_no_experiment_is_refused():
    with pytest.raises(igpe.errors.ProblemError, match=r"expected an igpe.Experiment, a list"):
        reconcile(plant(), NODES)
    with pytest.raises(igpe.errors.DataError, match=r"Experiments share names"):
        reconcile([experiment(plant())] * 2, NODES)
