"""The result of an estimation: plain numbers, tables and sentences, without the model."""

from dataclasses import dataclass
from datetime import date as day_of
from pathlib import Path
from typing import Any

from igpe.core.errors import DataError
from igpe.core.files import write
from igpe.core.json_form import Stored
from igpe.core.markup import tex
from igpe.problem.tables import workbook
from igpe.results.answer import estimates, html, text, verdict
from igpe.results.details import Details, details
from igpe.results.plots.axes import Plot
from igpe.results.plots.fit import plot_fit, plot_spectra
from igpe.results.report import TITLE, page
from igpe.results.residual_table import standard_residuals
from igpe.results.result_data import ResultData


@dataclass(frozen=True)
class Result(ResultData, Stored, name="result", number=1):
    """Estimates with their uncertainty and their origin.

    When printed, a result begins with a three-line verdict: fit, parameters, optimum. `details`
    contains the rest.

    estimates     one `Parameter` per unknown
    objective     weighted sum of squared residuals plus the prior terms, computed by accurate
                  integration
    status        the `Status` with which step 5 ended
    covariance    (n, n) covariance of the first n `estimates`; the other unknowns were fixed
    measurements  number of measurements
    degrees       degrees of freedom (number of measurements minus number of unknowns that are not
                  on a bound)
    variance      estimated variance of a residual with weight 1; 1 if sigma was given
    probability   probability of a larger chi squared if the model is correct; NaN if sigma was not
                  given
    confidence    confidence level of the intervals
    certificates  the proofs from step 3
    candidates    all candidates for the estimate that igpe computed, best first
    structure     the report from step 2, as text
    points        table with the columns `experiment`, `name`, `time`, `measured`, `fitted`,
                  `residual`, `sigma` (used in the fit), `unit` and `leverage`. If sigma was unknown
                  and several quantities were weighted according to the sizes of their residuals,
                  the column `relative_sigma` is added. If some standard deviations were estimated
                  (`EstimatedSigma`), the column `sigma_estimated` is 1 for these and 0 for others.
                  If values below a limit of detection were left out, the column `limit` contains
                  the largest limit of the quantity. If errors are correlated, igpe predicts each
                  residual from the preceding residuals. The column `whitened` then contains the
                  prediction error divided by its standard deviation, and the column `conditional`
                  contains this standard deviation as a fraction of `sigma`
    curves        table on a fine grid, with the columns `experiment`, `name`, `time`, `fitted`,
                  `smoothed` and `smoothed_error`; if errors are known, the columns `lower` and
                  `upper` contain the limits of the linearised band of the fitted model
    seconds       wall time of each step
    versions      versions of the packages
    seed          seed of the search
    notes         remarks, shown in `details`
    settings      description of how the steps were carried out
    actions       recommended actions, shown below the estimates
    maps          which equations determine which quantities and parameters, as in `Structure.maps`
    proof         the proof of `igpe.certify`, without its boxes; None if it was not requested
    adequacy      whether the model fits: a single verdict from all tests of the residuals; None in
                  results stored by older versions
    other_optima  all other known optima that the likelihood ratio test (F test if sigma is
                  unknown) does not reject at the level `confidence`, best first
    criterion     name of the objective if it is not a sum of squares; otherwise empty
    time_unit     unit of the times; empty if unknown
    equations     equations of the first experiment's model, typeset by `igpe.problem.card`
    sources       a dict {experiment: name and SHA-256 checksum of its data file}
    combined      unknowns that can be determined only in combination, even from perfect
                  measurements
    unprovable    reason why `igpe.certify` does not support the problem; empty if it supports the
                  problem
    spectral      the fits of the spectra: pure spectra, residuals and scatter; the property
                  `spectra` is the table of the pure spectra
    correlations  estimated correlations of errors, by name
    other_priors  unknowns with priors that are not normal; the objective then contains minus twice
                  the logarithms of their densities, and is no sum of squares
    likelihood_gain  how much larger the log-likelihood is at the correlations of errors that
                  maximise it than at those in `correlations` (restricted maximum likelihood)
    prior_level   sum of the logarithms of the densities of the priors that are not normal, each at
                  its median; the objective contains it, and comparisons of models do not
    active        active constraints and active bounds of states, with their times if they have
                  some: without them, the model would fit better
    linked        groups of unknowns that active bounds or constraints link, so that one of them
                  determines the others; numbers of rows of `covariance`
    conditions    of each experiment in words: its name, start values, inputs and events
    stopped_by    `Status.INTERRUPTED` or `Status.TIME_LIMIT` if Ctrl-C or the time limit stopped
                  `igpe.estimate` in any of its parts, also after step 5; otherwise None
    """

    @property
    def verdict(self) -> dict[str, str]:
        """The verdict in words: fit of the model, determined unknowns, quality of the optimum."""
        return verdict(self).words()

    @property
    def details(self) -> Details:
        """Further tables and text: standard errors, other optima, fit, search, proofs, remarks,
        time."""
        return details(self)

    def plot(self, axes: Any = None, *, residuals: bool = False, smoothed: bool = False) -> Plot:
        """Plot measurements and fitted model: one panel per quantity, one colour per experiment.

        axes       matplotlib axes, one per quantity; None: draw in a new figure
        residuals  whether to draw the standardised residuals in a strip below each panel; `axes`
                   must then contain twice as many axes: first the axes of the panels, then the axes
                   of the strips
        smoothed   whether to draw the smoothed measurements from step 1 as well
        """
        values = standard_residuals(self.points, self.variance)[0] if residuals else None
        how: dict[str, Any] = {
            "smoothed": smoothed,
            "time_unit": self.time_unit,
            "confidence": self.confidence,
        }
        return plot_fit(self.points, self.curves, axes, residuals=values, **how)

    def plot_spectra(self, axes: Any = None) -> Plot:
        """Plot the pure spectra with 95 % bands, and a map of the residuals of each experiment.

        axes    matplotlib axes, for each fit in `spectral` one and one for each of its experiments;
                None: draw in a new figure
        raises  ProblemError for a result without spectra
        """
        return plot_spectra(self.spectral, axes, self.time_unit)

    def report(
        self,
        path: str | Path | None = None,
        *,
        title: str = TITLE,
        author: str = "",
        date: str | None = None,
    ) -> str:
        """Return a self-contained HTML page, and write it to `path` if a path is given.

        path          name of the file, which must end in .html
        title         heading of the page
        author, date  author and date to print below the title; the default date is today
        raises        DataError if the path does not end in .html
        """
        if path is not None and Path(path).suffix.lower() not in {".html", ".htm"}:
            raise DataError(f"The report is a web page, but '{path}' does not end in .html.")
        day = day_of.today().isoformat() if date is None else date
        written = page(self, title, ", ".join(filter(None, (author, day))))
        if path is not None:
            write(path, written)
        return written

    def to_latex(self) -> str:
        """Return the table of estimates as a LaTeX tabular, with escaped names."""
        heads, *rows = ([tex(cell) for cell in row] for row in estimates(self, width=None))
        lines = [" & ".join(row) + r" \\" for row in (heads, *rows)]
        head = rf"\begin{{tabular}}{{{'l' * len(heads)}}}", r"\hline"
        return "\n".join([*head, lines[0], r"\hline", *lines[1:], r"\hline", r"\end{tabular}"])

    def to_excel(self, path: str | Path) -> None:
        """Write a workbook with four sheets: estimates, measurements with fitted values, sums of
        squares of each quantity, and correlations of the estimates.

        raises DataError if openpyxl is not installed (pip install 'igpe[excel]')
        """
        sheets = {
            "estimates": self.to_frame().reset_index(),
            "measurements": self.points,
            "fit": self.fit().reset_index(),
            "correlation": self.correlation.rename_axis("name").reset_index(),
        }
        write(path, workbook(sheets))

    def entries(self) -> dict[str, Any]:
        """Return the entries of the JSON: the fields, the parameter values and the verdict."""
        return super().entries() | {"parameters": self.parameters, "verdict": self.verdict}

    def __repr__(self) -> str:
        values = ", ".join(f"{p.name}={p.value:.6g}" for p in self.estimates)
        return f"Result({values}; objective {self.objective:.6g}; {self.status.name})"

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)
