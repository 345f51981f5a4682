"""The checker: is a certificate's claim a theorem?

1. the tree's leaves cover the box (exact comparison);
2. the sum of squares at its parameters is not above its objective (validated integration);
3. on every leaf and everything a contraction cut off it is not below its lower bound (likewise).

Of a likelihood region (`statements.py`) also:

4. its cut is not below what the data and the level of confidence come to;
5. on every leaf, and everything a contraction cut off, that is not open and does not lie in one of
   its boxes the sum of squares is not below the cut;
6. points said to belong to it do: their sum of squares is not above the level of the lower bound.

Bounds are compared as the doubles they are. Nothing else in a certificate is believed.
"""

import enum
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from igpe.core.arguments import is_number, require
from igpe.core.arrays import BoolArray
from igpe.core.errors import DataError, ProblemError, SolverMissing
from igpe.core.files import read_json
from igpe.core.markup import Rows, Shown, at_side
from igpe.core.progress import Progress, say, with_bar
from igpe.problem.problem import Problem
from igpe.proofs.checker.confirm import (
    Claims,
    Confirmed,
    Effort,
    confirm,
    is_over,
    load_kernels,
    value_at,
    values_at,
)
from igpe.proofs.checker.experiments import Replay, replays
from igpe.proofs.checker.statements import (
    RegionClaim,
    StatedWeights,
    Threshold,
    corner,
    difference,
    fault_of_sigma,
    finite,
    premise_of_quotients,
    read_region,
    read_weights,
    spread_at,
    weighted,
)

if TYPE_CHECKING:
    from igpe.proofs.checker.arb import ArbCheck, ThirdCheck


class Verdict(enum.Enum):
    """Verdict on a certificate; the value of each member is its name in words."""

    VERIFIED = "verified"
    REFUTED = "refuted"
    NOT_CONFIRMED = "not confirmed"


@dataclass(frozen=True)
class UnprovedRegion:
    """A box of parameters, and why it is not confirmed."""

    lower: dict[str, float]
    upper: dict[str, float]
    why: str


@dataclass(frozen=True, repr=False)
class Verified(Shown):
    """Result of `igpe.verify`.

    verdict      VERIFIED: no parameter values within the box have a sum of squares below
                 `lower_bound`, and the sum of squares at the certificate's parameter values lies in
                 the interval `objective`; REFUTED: the tree does not cover the box, or parameter
                 values contradict the certificate; NOT_CONFIRMED: neither was shown
    lower_bound  as certified
    objective    (lower, upper) enclosure of the sum of squares at the certificate's parameter
                 values
    regions      boxes where the bound is refuted or not confirmed
    volume       fraction of the box's volume that was not confirmed
    leaves       number of parts of the box: leaves of the tree, and slabs that contractions cut off
    subdivided   number of leaves and slabs that the checker had to divide further
    boxes        number of boxes over which the checker integrated the model
    seconds      wall time of the check
    region       the verified statement about a likelihood region; empty if there is none
    premise      conditions under which the bound holds, in words; empty if there are none
    arb          result of the additional check with Arb (`with_="arb"`); None if it was not
                 requested
    interrupted  whether Ctrl-C ended the check
    """

    verdict: Verdict
    lower_bound: float
    objective: tuple[float, float]
    regions: tuple[UnprovedRegion, ...]
    volume: float
    leaves: int
    subdivided: int
    boxes: int
    seconds: float
    region: str = ""
    premise: str = ""
    arb: "ArbCheck | None" = None
    interrupted: bool = False

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VERIFIED

    @property
    def gap(self) -> float:
        """Relative gap between the verified bound and the upper end of `objective`."""
        top = self.objective[1]
        return max(0.0, 1 - self.lower_bound / top) if top > 0 else 0.0

    @property
    def sentence(self) -> str:
        """State what was shown, or where the check failed."""
        return self._own_sentence + (f" {self.arb.sentence}" if self.arb is not None else "")

    @property
    def _own_sentence(self) -> str:
        if self.verdict is Verdict.VERIFIED:
            top = at_side(self.objective[1], 9, 1)
            at = f"the sum of squares at the certificate's parameter values is at most {top}"
            fit = f"{at}; the certificate has no lower bound above 0"
            if self.lower_bound > 0:
                below = "no parameter values in the box have a sum of squares below "
                fit = f"{below}{at_side(self.lower_bound, 9, -1)}; {at} (gap {self.gap:.2g})"
            about = f"{self.region}. {fit[0].upper()}{fit[1:]}" if self.region else fit
            return (
                f"Verified: {about}. {self.leaves} parts of the box were verified with outward "
                f"rounding ({self.boxes} integrations, {self.seconds:.3g} s).{self.premise}"
            )
        first = self.regions[0]
        box = ", ".join(f"{n} in [{a:.6g}, {first.upper[n]:.6g}]" for n, a in first.lower.items())
        if self.verdict is Verdict.REFUTED:
            return f"Refuted: {first.why} ({box})."
        more = f", and {len(self.regions) - 1} more" if len(self.regions) > 1 else ""
        where = f" on {100 * self.volume:.3g} % of the box" if self.volume else ""
        return (
            f"Not confirmed{where}: {first.why} ({box}{more}). "
            "The checker found nothing that contradicts the certificate."
        )

    def _shown(self) -> tuple[list[Rows], list[str]]:
        return [], [self.sentence]


LEAVES = ("bound", "open", "within")
FORMAT = "igpe dynamic certificate 1"
Corner = tuple[float, ...]


@dataclass(frozen=True)
class BoxNode:
    """One box of the tree.

    reason    split, contracted (one child, nothing better in the rest), bound (nothing better in
              it), within (in a box of the region) or open
    children  indices of nodes that come later
    """

    low: Corner
    high: Corner
    reason: str
    children: tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """Claims of a certificate.

    low, high    the box;  point, objective   sum of squares <= objective there
    lower_bound  sum of squares >= it everywhere in the box
    nodes        node 0 is the root
    weights      standard deviations, where the problem does not have any
    likelihood   what is said of a likelihood region, if anything is
    """

    unknowns: tuple[str, ...]
    low: Corner
    high: Corner
    point: Corner
    objective: float
    lower_bound: float
    nodes: tuple[BoxNode, ...]
    weights: StatedWeights = field(default_factory=StatedWeights)
    likelihood: RegionClaim | None = None

    def faults(self) -> Iterator[tuple[int, str]]:
        """Places where the leaves do not cover the box: the node, and the fault."""
        root = self.nodes[0]
        if (root.low, root.high) != (self.low, self.high):
            yield 0, "the root of the tree is not the certificate's box"
        parents = Counter(i for node in self.nodes for i in node.children)
        yield from ((k, "it is the child of several boxes") for k, n in parents.items() if n > 1)
        for k, node in self._reached():
            wrong = _fault(node, [self.nodes[i] for i in node.children])
            if not wrong and self.likelihood is not None:
                wrong = self.likelihood.fault_of_leaf(node.reason, node.low, node.high)
            if wrong:
                yield k, wrong

    def claims(self) -> Claims:
        """Leaves, and what contractions cut off in slabs: a cover of the root if it has no faults.

        Open nodes are claims as well: the certified bound is one for them too.
        """
        parts = []
        for k, node in self._reached():
            own = [(node.low, node.high)] if node.reason in LEAVES else []
            if node.reason == "contracted":
                own += slabs(node, self.nodes[node.children[0]])
            parts += [(k, (node.low, node.high, *part)) for part in own]
        corners = np.array([part for _, part in parts]).reshape(len(parts), 4, len(self.low))
        numbers = np.array([k for k, _ in parts], dtype=np.intp)
        a, b, c, d = corners.transpose(1, 0, 2)
        return Claims(a, b, c, d, numbers)

    def above_cut(self, claims: Claims) -> BoolArray:
        """(n_claims,) which must exceed the cut of a likelihood region, not the lower bound."""
        if self.likelihood is None:
            return np.zeros(len(claims), dtype=bool)
        is_open = np.array([self.nodes[k].reason == "open" for k in claims.number], dtype=bool)
        return ~(is_open | self.likelihood.is_inside(claims))

    @property
    def open_share(self) -> float:
        """Share of the box's volume that open leaves take."""
        claims = self.claims()
        is_open = [self.nodes[k].reason == "open" for k in claims.number]
        return self.share(claims[np.array(is_open, dtype=bool)])

    def region(self, low: Iterable[float], high: Iterable[float], why: str) -> UnprovedRegion:
        """A box with the names of the unknowns."""
        lower, upper = (dict(zip(self.unknowns, map(float, c), strict=True)) for c in (low, high))
        return UnprovedRegion(lower, upper, why)

    def share(self, left: Claims) -> float:
        """Share of the box's volume that claims take."""
        size = np.array(self.high) - np.array(self.low)
        share = np.where(size > 0, (left.high - left.low) / np.where(size > 0, size, 1.0), 1.0)
        return float(np.prod(share, axis=1).sum())

    def _reached(self) -> Iterator[tuple[int, BoxNode]]:
        todo, seen = [0], {0}
        while todo:
            k = todo.pop()
            yield k, self.nodes[k]
            new = set(self.nodes[k].children) - seen  # boxes of two parents: 2^40 visits else
            todo += sorted(new)
            seen |= new


def slabs(outer: BoxNode, inner: BoxNode) -> Iterator[tuple[Corner, Corner]]:
    """Boxes that together with the inner one cover the outer one; closed, they share faces."""
    low, high = list(outer.low), list(outer.high)
    for i, (a, b) in enumerate(zip(inner.low, inner.high, strict=True)):
        if low[i] < a:
            yield tuple(low), (*high[:i], a, *high[i + 1 :])
        if b < high[i]:
            yield (*low[:i], b, *low[i + 1 :]), tuple(high)
        low[i], high[i] = a, b


def _fault(node: BoxNode, children: list[BoxNode]) -> str:
    """Fault of a node and its children; empty if there is none."""
    if any(a > b for a, b in zip(node.low, node.high, strict=True)):
        return "its bounds are reversed"
    if node.reason in LEAVES:
        return "it is a leaf, but has children" if children else ""
    if node.reason == "contracted" and len(children) != 1:
        return f"it is contracted to {len(children)} boxes instead of one"
    if node.reason == "contracted":
        pairs = zip(node.low, children[0].low, children[0].high, node.high, strict=True)
        inside = all(a <= b <= c <= d for a, b, c, d in pairs)
        return "" if inside else "the box to which it is contracted lies outside it"
    return _fault_of_split(node, children)


def _fault_of_split(node: BoxNode, children: list[BoxNode]) -> str:
    if len(children) <= 1:
        return f"it is split, but a part of it is missing (number of child boxes: {len(children)})"
    ends = sorted((c.low, c.high) for c in children)
    axes = [i for i in range(len(node.low)) if any(a[i] != ends[0][0][i] for a, _ in ends)]
    if len(axes) != 1:
        return "its children do not split it along one axis"
    i = axes[0]
    own, *others = [
        (*a[:i], *a[i + 1 :], *b[:i], *b[i + 1 :]) for a, b in [(node.low, node.high), *ends]
    ]
    if any(other != own for other in others):
        return "a child has different bounds along an axis that is not split"
    chain = [node.low[i], *(a[i] for a, _ in ends[1:]), node.high[i]]
    if chain[0] != ends[0][0][i] or chain[1:] != [b[i] for _, b in ends]:
        return "its children overlap, leave a gap, or do not cover the box exactly"
    return ""


def read_tree(source: Any) -> Tree:
    """Read a certificate: JSON text or data, the path of a file, or an object with `to_json()`.

    raises DataError if it is no certificate that this checker can read
    """
    data = _loaded(source)
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        given = data if isinstance(data, Mapping) else {}
        raise DataError(
            f"This is a stored {given.get('stored', type(data).__name__)} in the format "
            f"{given.get('format')!r}, but igpe.verify reads certificates in the format "
            f"{FORMAT!r}. "
            "Give the file that `igpe certify --certificate` or proof.to_json(path) wrote."
        )
    try:
        unknowns, count = tuple(str(n) for n in data["unknowns"]), len(data["tree"])
        nodes = tuple(_node(node, k, len(unknowns), count) for k, node in enumerate(data["tree"]))
        if not nodes or not unknowns:
            raise ValueError("it has no boxes")
        low, high, p = (corner(data[key], len(unknowns)) for key in ("lower", "upper", "point"))
        objective, bound = finite(data["objective"]), finite(data["lower_bound"])
        weights = read_weights(data, unknowns)
        region = read_region(data, len(unknowns))
        if region is None and any(node.reason == "within" for node in nodes):
            raise ValueError("a box has the reason 'within', but the certificate has no regions")
        return Tree(unknowns, low, high, p, objective, bound, nodes, weights, region)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"The certificate is damaged ({type(error).__name__}: {error}); write it again."
        ) from None


def _loaded(source: Any) -> Any:
    text = source.to_json() if hasattr(source, "to_json") else source
    if isinstance(text, Mapping):
        return text
    if not isinstance(text, (str, Path)):
        raise DataError(
            f"`certificate` is of type {type(source).__name__}; give a certificate from "
            "igpe.certify, its JSON text, or the path of its file."
        )
    try:
        is_text = isinstance(text, str) and text.lstrip().startswith(("{", "["))
        return read_json(str(text).encode("utf-8", "surrogatepass") if is_text else text)
    except OSError as error:
        raise DataError(
            f"The certificate's file '{str(text)[:100]}' could not be read ({error.strerror}; "
            f"working folder: {Path.cwd()})."
        ) from None
    except ValueError as error:
        raise DataError(f"The certificate is not valid JSON ({error}).") from None


def _node(data: Mapping[str, Any], k: int, n: int, count: int) -> BoxNode:
    children = tuple(int(i) for i in data["children"])
    if not all(k < i < count for i in children):
        raise ValueError(f"node {k} has a child that does not follow it in the list of nodes")
    if data["reason"] not in ("split", "contracted", *LEAVES):
        raise ValueError(f"node {k} has the unknown reason {data['reason']!r}")
    return BoxNode(corner(data["lower"], n), corner(data["upper"], n), data["reason"], children)


USUAL, LOSS = Effort(), 1e-3  # of sqrt(gap): the precision that a level needs
SHOWN = 1000  # regions at most that an answer lists
NO_PROOF = "no proof {} that the sum of squares is above the bound"


@with_bar
def verify(
    certificate: Any,
    problem: Problem,
    seconds: float = 600.0,
    effort: Effort = USUAL,
    *,
    with_: Literal["arb"] | None = None,
    progress: Progress = None,
) -> Verified:
    """Verify a certificate of global optimality with independent code.

    The checker and the prover share the code that translates the model into expressions
    (`igpe.equations`). The checker has its own code for arithmetic, integration and bounds.

    certificate  a certificate from `igpe.certify`, its JSON text, or the path of its file
    problem      the problem for which the certificate was computed
    seconds      time limit in seconds; igpe reports a box as not confirmed if it has not checked
                 the box by then. Ctrl-C does the same
    effort       computational effort of the integration; it affects how many boxes are confirmed,
                 but not the correctness of the verdict
    with_        "arb": igpe also uses Arb's arithmetic and the Pyomo model itself to check the
                 objective (to 30 digits) and a random sample of the leaves. This check requires
                 `pip install 'igpe[arb]'`
    progress     a function that receives each message; or True, False or None, as for
                 `igpe.estimate`
    raises       DataError if `certificate` is not a certificate, ProblemError if it belongs to
                 another problem, Unsupported if the problem has features that the checker does not
                 support, SolverMissing if python-flint is not installed
    """
    require(is_number(seconds) and seconds >= 0, "verify", "seconds", seconds, "0 or more")
    tree = read_tree(certificate)
    _require_same(tree, problem)
    certified, problem = problem, weighted(tree.weights, problem)
    given, third, own = replays(problem), _third(problem, with_), tree.likelihood
    load_kernels(given[0], len(tree.unknowns))
    begin, point = time.monotonic(), np.array(tree.point)
    end = begin + seconds
    objective = value_at(given, point, end)
    off = difference(tree.weights, certified, given)
    spread = spread_at(tree.weights, certified, given, point)
    why = fault_of_sigma(tree.weights, certified, off)
    refuted, open_ = _faults(tree, objective, why, timed_out=time.monotonic() >= end)
    threshold = own.threshold(problem, given, point) if own is not None else None
    if threshold is not None and not refuted:
        refuted, doubtful = _region_faults(tree, threshold, given, end)
        open_ += doubtful
    claims, outcomes = None, list[Confirmed]()
    if not refuted and not open_:
        claims = tree.claims()
        outcomes, refuted = _confirmed(tree, claims, given, replace(effort, end=end))
        when = "before Ctrl-C" if is_over(outcomes) else f"within {seconds:g} s"
        pairs = [pair for o in outcomes for pair in zip(o.left.low, o.left.high, strict=True)]
        open_ = [tree.region(*pair, NO_PROOF.format(when)) for pair in pairs[:SHOWN]]
        if not (open_ or objective[1] <= tree.objective):
            open_ = [tree.region(tree.point, tree.point, NO_PROOF.format(when))]
    by_arb = None if third is None or refuted or is_over(outcomes) else _by_arb(third, tree, end)
    if by_arb is not None:
        refuted = [tree.region(p, p, why) for p, why in by_arb.refuted]
    return Verified(
        Verdict.REFUTED if refuted else Verdict.NOT_CONFIRMED if open_ else Verdict.VERIFIED,
        lower_bound=tree.lower_bound,
        objective=objective,
        regions=tuple(refuted or open_),
        volume=0.0 if refuted else sum(tree.share(o.left) for o in outcomes),
        leaves=0 if claims is None else len(claims),
        subdivided=sum(o.subdivided for o in outcomes),
        boxes=sum(o.boxes for o in outcomes),
        seconds=time.monotonic() - begin,
        region="" if refuted or open_ else _region_in_words(tree, threshold),
        premise=tree.weights.premise(tree.unknowns, certified, off, spread)
        + premise_of_quotients(given, problem.box.lower),
        arb=by_arb,
        interrupted=is_over(outcomes),
    )


def _region_in_words(tree: Tree, threshold: Threshold | None) -> str:
    if tree.likelihood is None or threshold is None:
        return ""
    return tree.likelihood.sentence(tree.unknowns, threshold, is_open=tree.open_share > 0)


def _third(problem: Problem, with_: str | None) -> "ThirdCheck | None":
    require(with_ in (None, "arb"), "verify", "with_", with_, "'arb' or nothing")
    if with_ is None:
        return None
    try:
        from igpe.proofs.checker.arb import ThirdCheck  # noqa: PLC0415
    except ImportError:
        raise SolverMissing(
            "The check with Arb needs `python-flint`, which is not installed: "
            "pip install 'igpe[arb]'."
        ) from None
    return ThirdCheck(problem)


def _by_arb(third: "ThirdCheck", tree: Tree, end: float) -> "ArbCheck":
    say("Checking the objective and a sample of the leaves with Arb")
    claims = tree.claims()
    cut = tree.lower_bound if tree.likelihood is None else tree.likelihood.cut
    levels = np.where(tree.above_cut(claims), cut, tree.lower_bound)
    return third(tree.point, tree.objective, (claims.low, claims.high, levels), end=end)


Regions = list[UnprovedRegion]


def _confirmed(
    tree: Tree, claims: Claims, given: Sequence[Replay], effort: Effort
) -> tuple[list[Confirmed], Regions]:
    """What of the claims was confirmed, and parameters that refute one of them."""
    outcomes, above = list[Confirmed](), tree.above_cut(claims)
    cut = tree.lower_bound if tree.likelihood is None else tree.likelihood.cut
    for own, level in ((above, cut), (~above, tree.lower_bound)):
        if not own.any():
            continue
        rest = 0.0 if is_over(outcomes) else effort.end - time.monotonic()
        with np.errstate(all="ignore"):  # what overflows is unbounded, and cut further
            outcomes.append(confirm(given, claims[own], level, _precise(effort, tree, level), rest))
        if (better := outcomes[-1].better) is not None:
            why = f"with these parameter values, the sum of squares is below {level:.9g}"
            return outcomes, [tree.region(better, better, why)]
    return outcomes, []


def _precise(effort: Effort, tree: Tree, level: float) -> Effort:
    """As precise as a level needs: boxes on which the sum is a `gap` higher are sqrt(gap) wide."""
    gap = 1 - level / tree.objective if tree.objective > level > 0 else 1.0
    return replace(effort, precision=min(effort.precision, LOSS * gap**0.5))


def _region_faults(
    tree: Tree, threshold: Threshold, given: Sequence[Replay], end: float
) -> tuple[Regions, Regions]:
    """What refutes a likelihood region, its tree apart, and what leaves it not confirmed."""
    region = tree.likelihood
    assert region is not None, "there is a threshold"
    bounds = tree.low, tree.high
    wrong = [tree.region(*f) for f in region.faults_of_numbers(threshold, tree.objective, bounds)]
    if why := region.fault_of_openness(tree.open_share):
        wrong.append(tree.region(*bounds, why))
    why = region.doubt_of_degrees(threshold, tree.objective, tree.lower_bound)
    doubtful = [tree.region(tree.point, tree.point, why)] * bool(why)
    claimed = [(p, part.objective) for part in region.parts for p in [part.point]]
    claimed += [(p, threshold.above(tree.lower_bound)) for o in region.parts for p in o.inside]
    if wrong or not claimed:
        return wrong, doubtful
    low, high = values_at(given, np.array([p for p, _ in claimed]), end)
    for (p, most), least, top in zip(claimed, low, high, strict=True):
        if least > most:
            why = (
                f"with these parameter values, the sum of squares is {least:.9g}; the certificate "
                f"says at most {most:.9g}"
            )
            wrong.append(tree.region(p, p, why))
        elif not top <= most:
            why = f"with these parameter values, the sum of squares lies in [{least}, {top}]"
            doubtful.append(tree.region(p, p, f"{why}, but must be at most {most:.9g}"))
    return wrong, doubtful


def _require_same(tree: Tree, problem: Problem) -> None:
    box = problem.box
    if tree.unknowns != box.names:
        raise ProblemError(
            f"The certificate is for the unknowns {', '.join(tree.unknowns)}, but the problem's "
            f"unknowns are {', '.join(box.names)}. Give the problem that was certified."
        )
    own, other = (
        list(zip(*ends, strict=True))
        for ends in ((tree.low, tree.high), (box.lower.tolist(), box.upper.tolist()))
    )
    if own != other:
        raise ProblemError(
            f"The certificate is for the box {own}, but the problem has the bounds {other}. Give "
            "the problem that was certified."
        )


def _faults(
    tree: Tree, objective: tuple[float, float], of_sigma: str, *, timed_out: bool
) -> tuple[Regions, Regions]:
    """Where the tree has a hole, or its parameters are not as good as certified.

    of_sigma  fault of the standard deviations; empty if there is none
    returns  what refutes the certificate, and what leaves it not confirmed
    """
    nodes, p, (low, high) = tree.nodes, tree.point, objective
    holes = [
        tree.region(nodes[k].low, nodes[k].high, f"node {k} of the tree is wrong: {why}")
        for k, why in tree.faults()
    ]
    if holes:
        return holes, []
    if of_sigma:
        return [tree.region(tree.weights.at, tree.weights.at, of_sigma)], []
    if not all(a <= x <= b for a, x, b in zip(tree.low, p, tree.high, strict=True)):
        why = "the certificate's parameter values lie outside its box"
    elif low > tree.objective:
        why = (
            f"with the certificate's parameter values, the sum of squares is {low:.9g}; the "
            f"certificate says at most {tree.objective:.9g}"
        )
    elif high < tree.lower_bound:
        why = (
            "with the certificate's parameter values, the sum of squares is below the "
            f"certificate's bound {tree.lower_bound:.9g}"
        )
    elif not (high <= tree.objective) and not timed_out:
        why = (
            "with the certificate's parameter values, the sum of squares could only be shown to "
            f"lie in [{low}, {high}]"
        )
        return [], [tree.region(p, p, why)]
    else:
        return [], []
    return [tree.region(p, p, why)], []
