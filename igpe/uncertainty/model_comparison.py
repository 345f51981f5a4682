"""Rival models on the same measurements: information criteria and likelihood ratios."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arguments import require_mapping
from igpe.core.arrays import BoolArray
from igpe.core.errors import DataError, ProblemError, Unsupported
from igpe.core.markup import Rows, Shown, frame_rows, in_words
from igpe.numerics.lack_of_fit import CLOSE, FAR, akaike_weights, exact_probability
from igpe.results.residual_table import sigma_known
from igpe.results.result import Result

WORSE = 1e-2  # of the objective: a model that fits worse by more does not contain the other; by
# less it may, where bounds cut it off
SPECIAL = (
    "Such a test assumes that the model with fewer unknowns is a special case of the other one. "
    "igpe infers this from their names; write nested={...} for the pairs of which it is true."
)
FEW = 3  # pairs of nested models that each get a sentence
CHANCE = 0.05  # of a likelihood ratio


@dataclass(frozen=True, repr=False)
class ModelComparison(Shown):
    """Comparison of rival models, best first.

    table  one row for each model, with the columns `unknowns` (their number, including an unknown
           sigma), `objective`, `log_likelihood`, `AIC`, `AICc`, `BIC`, `delta` (AICc minus the
           smallest AICc), `weight` (Akaike weight), `within` (the smallest model that contains
           all unknowns of this model and others), and `p` (p-value of the likelihood ratio test of
           this model against the model in `within`)
    notes  remarks for the user
    """

    table: pd.DataFrame
    notes: tuple[str, ...] = ()

    def _shown(self) -> tuple[list[Rows], tuple[str, ...]]:
        return [frame_rows(self.table)], self.notes


def compare_models(
    results: Mapping[str, Result], nested: Mapping[str, str] | None = None
) -> ModelComparison:
    """Compare several models on the same measurements.

    AIC = 2 k - 2 log L, AICc = AIC + 2 k (k + 1) / (n - k - 1), BIC = k log n - 2 log L, with k
    unknowns and n measurements; log L includes the logarithms of the priors' densities, relative to
    those at their medians, so that units do not matter. Where correlations of errors were
    estimated, log L is its maximum over the correlations as well. The weights are proportional
    to exp(-delta / 2). A likelihood ratio test compares a nested model with the larger model; it
    uses the chi-squared distribution if sigma is known, and otherwise the F distribution.

    results  a dict {name: result}; all results must be fits to the same measurements
    nested   a dict {smaller model: larger model that contains it} with the names of the models;
             None: igpe identifies such pairs from the names of the unknowns, and assumes that
             equal names mean equal parameters
    raises   DataError if the measurements differ, or if only some of the fits have standard
             deviations, ProblemError if there are fewer than two models, or if `nested` names a
             model that is not in `results`, Unsupported for fits with a robust loss, which is not a
             likelihood
    """
    require_mapping("results", results, "{'a': one, 'b': other}", ProblemError)
    if len(results) < 2:  # noqa: PLR2004
        raise ProblemError(
            "compare_models needs at least two models: compare_models({'a': one, 'b': other})."
        )
    for name, result in results.items():
        if not isinstance(result, Result):
            raise ProblemError(
                f"'{name}' is of the type {type(result).__name__}; compare_models needs results: "
                f"{{'{name}': igpe.estimate(problem), ...}}."
            )
    refuse_robust([name for name, result in results.items() if result.is_robust])
    _check_same(results)
    pairs = dict(_by_names(results) if nested is None else nested)
    unknown_names = sorted({n for pair in pairs.items() for n in pair} - set(results))
    if unknown_names:
        raise ProblemError(
            f"`nested` names the models {unknown_names}, which are not in {list(results)}."
        )
    table = pd.DataFrame.from_dict({n: _row(r) for n, r in results.items()}, orient="index")
    table["delta"] = table["AICc"] - table["AICc"].min()
    table["weight"] = akaike_weights(table["delta"].to_numpy(dtype=float))
    table["within"] = [pairs.get(n, "") for n in table.index]
    table["p"] = [
        _ratio(results[n], results[pairs[n]]) if n in pairs else np.nan for n in table.index
    ]
    table = table.sort_values("delta", kind="stable").rename_axis("model")
    notes = list(_notes(table, results))
    if nested is None and bool(table["p"].notna().any()):
        notes.append(SPECIAL)
    return ModelComparison(table, tuple(notes))


def refuse_robust(names: Sequence[str]) -> None:
    """Raise Unsupported if models were, or would be, fitted with a robust loss."""
    if names:
        raise Unsupported(
            f"{in_words(names)} cannot be compared with other models, because a robust loss (Huber "
            "or L1) is not a likelihood. Omit the argument `loss`, and remove outliers from the "
            "data instead (see `result.outliers()`). Remove the same outliers for every model."
        )


def _estimated(result: Result) -> set[str]:
    """The unknowns that were estimated, those on bounds included."""
    return {p.name for p in result.estimates if p.found_by != "held"}


def _row(result: Result) -> dict[str, Any]:
    """Criteria of one model; the likelihood is at its maximum, over an unknown sigma too."""
    if result.spectral:
        return _spectral_row(result)
    n, cost, known = result.measurements, result.objective, sigma_known(result.points)
    k = len(_estimated(result)) + (0 if known else max(len(result.relative_sigma), 1))
    k += len(result.correlations)
    if known:
        logs = np.log(result.points["sigma"].to_numpy(dtype=float) ** 2)
        counted = _in_objective(result)
        top = float(-0.5 * (cost + len(logs) * np.log(2 * np.pi) + logs[~counted].sum()))
    else:
        top = float(-0.5 * n * (np.log(2 * np.pi * max(cost, 1e-300) / n) + 1))
    if "conditional" in result.points:
        top -= float(np.log(result.points["conditional"]).sum())
    return _criteria(cost, top + result.likelihood_gain - result.prior_level, k, n)


def _in_objective(result: Result) -> BoolArray:
    """(m,) whether the objective contains the logarithm of the standard deviation."""
    if "sigma_estimated" in result.points:
        return result.points["sigma_estimated"].to_numpy(dtype=bool)
    is_likelihood = bool(result.criterion) and "limit" not in result.points  # an older version's
    return np.full(len(result.points), is_likelihood)


def _spectral_row(result: Result) -> dict[str, Any]:
    """The same with spectra: of unknown noise, and with all pure spectra as unknowns."""
    rest = result.objective - sum(one.cost for one in result.spectral)  # of concentrations
    top = sum(one.log_likelihood for one in result.spectral) - 0.5 * rest
    top -= result.prior_level
    k = len(_estimated(result)) + sum(o.eliminated + len(o.squares) for o in result.spectral)
    return _criteria(result.objective, top, k, result.measurements)


def _criteria(cost: float, top: float, k: int, n: int) -> dict[str, Any]:
    """Of n measurements, k unknowns and the largest log likelihood."""
    aic = 2 * k - 2 * top
    return {
        "unknowns": k,
        "objective": cost,
        "log_likelihood": top,
        "AIC": aic,
        "AICc": aic + 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else np.inf,
        "BIC": k * np.log(n) - 2 * top,
    }


def _ratio(small: Result, large: Result) -> float:
    """Probability of a larger likelihood ratio, if the smaller model is right."""
    is_known = sigma_known(small.points)
    if small.spectral or small.correlations or large.correlations or is_known:
        one, other = _row(small), _row(large)
        gain = 2 * (other["log_likelihood"] - one["log_likelihood"])
        more = other["unknowns"] - one["unknowns"]
        return float(special.chdtrc(more, max(gain, 0.0))) if more > 0 else np.nan
    more = len(_estimated(large)) - len(_estimated(small))
    gain, left = small.objective - large.objective, large.measurements - len(_estimated(large))
    if more <= 0 or left <= 0:
        return np.nan
    return float(special.fdtrc(more, left, max(gain, 0.0) / more / (large.objective / left)))


def _by_names(results: Mapping[str, Result]) -> dict[str, str]:
    """Each model within the smallest one that has all its unknowns and more, and fits no worse."""
    own = {n: _estimated(r) for n, r in results.items()}
    level = {n: r.objective + WORSE * (1 + abs(r.objective)) for n, r in results.items()}
    larger = {
        name: [n for n in own if mine < own[n] and results[n].objective <= level[name]]
        for name, mine in own.items()
    }
    return {name: min(some, key=lambda n: len(own[n])) for name, some in larger.items() if some}


def _check_same(results: Mapping[str, Result]) -> None:
    (first, one), *others = results.items()
    for name, other in others:
        if not _measured(one).equals(_measured(other)):
            raise DataError(
                f"'{first}' and '{name}' were fitted to different measurements; only models "
                "with the same measurements can be compared."
            )
        if sigma_known(one.points) != sigma_known(other.points):
            raise DataError(
                f"Standard deviations are given for only one of '{first}' and '{name}'; give "
                "them for both, with the same values."
            )


def _measured(result: Result) -> pd.DataFrame:
    """What was measured; of spectra, from which concentrations were unmixed, their sizes."""
    keys = ["experiment", "name", "time", "measured"]
    if not result.spectral:
        return result.points[keys].sort_values(keys, ignore_index=True)
    rows = [
        (*one.experiments, one.residuals.shape, one.wavelengths.sum(), f"{one.measured:.6g}")
        for one in result.spectral
    ]
    return pd.DataFrame({"spectra": [*map(str, rows)], "numbers": result.measurements})


def _notes(table: pd.DataFrame, results: Mapping[str, Result]) -> Iterator[str]:
    best, deltas = table.index[0], table["delta"]
    if np.isfinite(deltas[best]):
        weight = 100 * table["weight"].iloc[0]
        yield f"{best} has the best AICc, with {weight:.3g} % of the weight."
    if many := [str(n) for n in table.index if not np.isfinite(deltas[n])]:
        yield (
            f"{in_words(many)} {'has' if len(many) == 1 else 'have'} no finite AICc, which needs "
            "at least two more measurements than unknowns."
        )
    close = [str(n) for n in table.index[1:] if deltas[n] < CLOSE]
    if close:
        yield f"These measurements cannot distinguish {in_words(close)} from {best}."
    far = [str(n) for n in table.index[1:] if FAR < deltas[n] < np.inf]
    if far:
        yield f"{in_words(far)} {'has' if len(far) == 1 else 'have'} no support."
    nested = table[(table["within"] != "") & np.isfinite(table["p"])]
    for name, row in nested.iterrows():
        if len(nested) > FEW and min(deltas[name], deltas[row["within"]]) > 0:
            continue  # of many pairs those of the best
        verb = "fits" if row["p"] < CHANCE else "does not fit"
        chance = exact_probability(row["p"])
        yield f"{row['within']} {verb} significantly better than {name} ({chance})."
    bound = [n for n, r in results.items() if any("bound" in p.remark for p in r.estimates)]
    if bound:
        yield (
            f"{in_words(bound)} {'has' if len(bound) == 1 else 'have'} unknowns on a bound, where "
            "likelihood ratios are not exact."
        )
