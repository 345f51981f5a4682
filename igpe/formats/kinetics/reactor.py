"""Reactors as Pyomo models: what they share, and closed vessels.

Batch, Cstr and PlugFlow have constant volume and use concentrations; Semibatch uses amounts and a
volume of its own. Units of a reactor's quantities serve the tables and measurements in other units.
A catalyst may lose its activity over time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import pyomo.environ as pyo
from pyomo import dae

from igpe.core.arguments import is_finite, is_number, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.core.markup import table
from igpe.formats.kinetics.laws import (
    Concentrations,
    Law,
    OwnLaw,
    Reaction,
    conservation_laws,
    laws_for,
    numbered,
    power,
)
from igpe.formats.kinetics.temperature import (
    CONCENTRATION,
    KELVIN,
    NONE,
    REFERENCE,
    TEMPERATURE,
    Constant,
    Dimension,
    Eyring,
    HeatBalance,
    Thermal,
    Units,
    concentration,
    is_name,
    names_in,
    parts,
    require_constant,
    value,
)
from igpe.problem.card import equations, typeset
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import evaluate
from igpe.problem.problem import Problem

ACTIVITY = "activity"  # the model's name of it


@dataclass(frozen=True)
class Deactivation:
    """Catalyst activity, which decreases over time and multiplies reaction rates: dactivity/dt =
    -constant*(activity - residual)^order*(product of c^n). `activity` is a state; it starts at 1
    for a fresh catalyst.

    constant   rate constant of deactivation
    order      order with respect to the activity: 1 (exponential), 2 (sintering), or the name
               of a parameter
    poisons    a dict {species: order n} of the species that cause deactivation: reactants
               (parallel deactivation), products (series deactivation) or poisons
    residual   residual activity: number, or name of a parameter
    reactions  the reactions that need the catalyst, listed by their numbers, starting from 1; None:
               all reactions

    raises ModelError for invalid constants or orders

    Source: Levenspiel, Chemical Reaction Engineering, 3rd ed. (1999), chapter 21; residual
    activity: Fuentes, Appl. Catal. 15 (1985) 33.
    """

    constant: Constant
    order: str | float = 1.0
    poisons: Mapping[str, float] = field(default_factory=dict)
    residual: str | float = 0.0
    reactions: Iterable[int] | None = None

    def __post_init__(self) -> None:
        require_constant("Deactivation: `constant`", self.constant)
        require_constant("Deactivation: `order`", self.order, None)
        require_constant("Deactivation: `residual`", self.residual, None)
        require_mapping("poisons", self.poisons, "poisons={'A': 1}", ModelError)
        if not is_finite(*self.poisons.values()):
            raise ModelError(
                f"The orders of poisons must be numbers, for example {{'A': 1}}; got "
                f"{dict(self.poisons)}."
            )
        given = self.reactions
        is_list = isinstance(given, Iterable) and not isinstance(given, str)
        if not (given is None or (is_list and all(is_number(k) for k in given))):
            raise ModelError(
                f"Deactivation has reactions={shown(given)}; list the reactions by their "
                "numbers, starting from 1: reactions=[1, 3]."
            )
        object.__setattr__(self, "reactions", None if given is None else tuple(given))

    @property
    def constants(self) -> list[tuple[Constant, Dimension]]:
        """All constants, with their dimensions."""
        orders = sum(Fraction(str(n)) for n in self.poisons.values())
        own = (self.constant, concentration(-orders, -1))
        return [own, (self.order, NONE), (self.residual, NONE)]

    def concerns(self, number: int) -> bool:
        """Return True if the reaction with this number needs the catalyst."""
        return self.reactions is None or number in self.reactions

    def slope(self, m: Any, t: float, c: Concentrations) -> Any:
        """Return the time derivative of the activity."""
        left = m.component(ACTIVITY)[t]
        if self.residual != 0.0:
            left = left - value(self.residual, m, t)
        poison = prod(power(c[s], float(n)) for s, n in self.poisons.items())
        lost = value(self.constant, m, t) * power(left, value(self.order, m, t)) * poison
        return -lost


COLDEST = 100.0  # K: what is below is likely in degrees Celsius, or a blank column
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class Reactor:
    """Base of reactors. `reactor(times)` returns an ordinary pyomo.dae model.

    The model contains the time `t`, the states of this kind of reactor with their slopes (such as
    `dA`) and equations (such as `balance_A`), concentrations (such as `A`), the rates `r1`, `r2`,
    ... (concentration per time), and the temperature `T` (K) if a constant depends on it. All these
    quantities can be measured; the experiment gives the inputs.

    reactions    strings ("A + B -> C"), or `Reaction` with a rate law
    bounds       a dict {parameter: (lower, upper)}
    temperature  temperature, K, used if the experiment does not give the input `T`
    algebraic    species computed by conservation laws instead of their own differential equation
    units        units of the quantities; None: no units
    bystanders   further species, which no reaction changes
    inputs       names of constants that the experiments give as inputs (for example, a partial
                 pressure); these are not parameters
    reference    reference temperature, K, of constants without their own; by default `problem` and
                 `centred` choose it within the range of the measurements
    heat         a `HeatBalance`, which makes the temperature T a state; the experiment gives its
                 start value
    catalyst     a `Deactivation`, whose state `activity` multiplies rates; it is 1 for a fresh
                 catalyst
    raises       ModelError for invalid reactions, names used twice or with two units, and rate laws
                 that do not suit the reaction
    """

    reactions: Sequence[Reaction | str]
    bounds: Mapping[str, Bounds] = field(default_factory=dict, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    algebraic: Sequence[str] = field(default=(), kw_only=True)
    units: Units | None = field(default=None, kw_only=True)
    inputs: Sequence[str] = field(default=(), kw_only=True)
    reference: float | None = field(default=None, kw_only=True)
    heat: HeatBalance | None = field(default=None, kw_only=True)
    catalyst: Deactivation | None = field(default=None, kw_only=True)
    bystanders: Sequence[str] = field(default=(), kw_only=True)

    axis: ClassVar[str] = "time"
    """Dimension of the independent variable `t`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reactions", numbered(self.reactions))
        require_mapping("bounds", self.bounds, "bounds={'k1': (0, 10)}", ModelError)
        for role in ("algebraic", "inputs"):
            if isinstance(given := getattr(self, role), str):
                raise ModelError(f"{role}={given!r} is a single string; give a list of names.")
        if isinstance(self.bystanders, str) or not all(map(is_name, self.bystanders)):
            raise ModelError(
                f"`bystanders` is {shown(self.bystanders)}; give a list of names: bystanders=['S']."
            )
        self._check_kinds()
        refuse_unknown("inputs", self.inputs, "constants", names_in(self._constants))
        refuse_unknown("bounds", self.bounds, "parameters", self.parameters)
        for role in ("temperature", "reference"):
            given = getattr(self, role)
            if not (given is None or (is_finite(given) and given > 0)):
                raise ModelError(f"The {role} is {shown(given)}; give it in kelvin.")
        self._check_parts()
        names = [*self._names(), *self.parameters, *self.inputs]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ModelError(
                f"Each of the names {twice} has two meanings in this reactor. Species, parameters, "
                "inputs, rates (r1, r2, ...), the time t and the temperature T must all have "
                "different names; rename one of them."
            )
        self._check_units()
        refuse_unknown("algebraic", self.algebraic, "species", self.species)
        if self.algebraic:
            laws_for(self.algebraic, self.conservation)

    def _check_kinds(self) -> None:
        """Raise ModelError for anything but a heat balance and a catalyst."""
        for role, kind in (("heat", HeatBalance), ("catalyst", Deactivation)):
            given = getattr(self, role)
            if not (given is None or isinstance(given, kind)):
                raise ModelError(
                    f"{role} is {shown(given)}; give {role}=kinetics.{kind.__name__}(...)."
                )

    def _check_parts(self) -> None:
        """Raise ModelError unless heat balance and catalyst suit the reactions."""
        if self.heat is not None:
            count = len(self.heat.heats)
            if count != len(self.steps):
                raise ModelError(
                    f"The heat balance has {count} heats of reaction for {len(self.steps)} "
                    "reactions. Give one for each reaction; a heat may be 0.0."
                )
            if self.temperature is not None:
                raise ModelError(
                    "With a heat balance, the temperature is a state. Omit `temperature`, and give "
                    "the start value in the experiment: start={'T': 300.0}."
                )
            kind, is_given = type(self).__name__, self.heat.feed is not None
            if self._has_inflow and not is_given:
                raise ModelError(
                    f"The heat balance of a {kind} needs the temperature of the inflow. Give the "
                    "name of an input, or a number in kelvin: HeatBalance(..., feed='T_in')."
                )
            if is_given and not self._has_inflow and self.axis == "time":
                raise ModelError(
                    f"HeatBalance has `feed`, but no stream flows into this {kind}. Omit `feed`."
                )
        if self.catalyst is not None:
            given = self.catalyst.reactions or ()
            refuse_unknown("The catalyst", given, "reactions", range(1, len(self.steps) + 1))
            refuse_unknown("poisons", self.catalyst.poisons, "species", self.species)

    def _check_units(self) -> None:
        """Raise ModelError if a name stands for constants of different units."""
        known: dict[str, Dimension] = {}
        for constant, dimension in self._constants:
            for name, own in parts(constant, dimension):
                if isinstance(name, str) and known.setdefault(name, own) != own:
                    units = self.units or Units()
                    both = " and ".join(units.text(d) for d in (known[name], own))
                    raise ModelError(
                        f"'{name}' is the name of several constants with different units ({both}); "
                        "give each constant its own name."
                    )
            unit = self.units.time if self.units else None
            if isinstance(constant, Eyring) and unit not in (None, constant.time):
                raise ModelError(
                    f"Eyring uses the unit of time '{constant.time}', but the reactor uses "
                    f"'{unit}'; write Eyring(..., time='{unit}')."
                )
        if self.units and self.heat:
            _ = self.units.moles

    def _repr_html_(self) -> str:
        """The reactions, and the equations of the model that they make."""
        rows = [(f"r{k}", r.text) for k, r in enumerate(self.steps, start=1)]
        return table(("", "reaction"), rows) + typeset(equations(self))

    @property
    def steps(self) -> tuple[Reaction, ...]:
        """The reactions, each with its rate law."""
        return self.reactions  # type: ignore[return-value]

    @cached_property
    def species(self) -> tuple[str, ...]:
        """All species, in the order in which they are written; bystanders come last."""
        reacting = (s for r in self.steps for s in r.species)
        return tuple(dict.fromkeys((*reacting, *self.bystanders)))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of all constants that are neither numbers nor inputs."""
        own = (n for r in self.steps for n in r.parameters)
        every = dict.fromkeys((*own, *names_in(self._constants)))
        return tuple(n for n in every if n not in self.inputs)

    @cached_property
    def conservation(self) -> tuple[Law, ...]:
        """Weighted sums of species that no reaction changes: `print(*reactor.conservation)`."""
        return conservation_laws(self.species, (e for r in self.steps for e in r.fixed))

    @property
    def is_thermal(self) -> bool:
        """Return True if a constant depends on temperature, or the temperature is given or a
        state."""
        constants = (c for c, _ in self._constants)
        given = self.temperature is not None or self.heat is not None
        return given or any(isinstance(c, Thermal) for c in constants)

    def centred(self, experiments: Experiment | Iterable[Experiment]) -> Self:
        """Return a copy with a reference temperature within the range of the measurements.

        The reference temperature is 1 divided by the mean of 1/T over all measured times, rounded
        to 1 K. If all measurements have the same weight, this choice minimises the correlation
        between a constant and its energy. T is the measured temperature if there is one, otherwise
        the input, otherwise the start value.

        raises ModelError if no experiment contains a temperature
        """
        runs = [experiments] if isinstance(experiments, Experiment) else list(experiments)
        given = [t for run in runs for t in self._temperatures(run)]
        if not given or min(given) < COLDEST:
            data = f"temperatures T from {min(given):g} K" if given else "no temperature T"
            raise ModelError(
                f"igpe cannot choose a reference temperature: the experiments have {data}. Give T "
                f"in kelvin (at least {COLDEST:g}) as a measurement, an input or a start value; "
                "alternatively, pass reference=350.0 to the reactor."
            )
        return replace(self, reference=round(1 / float(np.mean([1 / t for t in given]))))

    def problem(self, experiments: Experiment | Iterable[Experiment], **options: Any) -> Problem:
        """Return an `igpe.Problem` for this reactor, in which all parameters are unknown.

        If constants have no reference temperature, `centred` chooses it.

        options  other arguments of `igpe.Problem`; use parameters=[...] to estimate only some
                 parameters
        """
        runs = [experiments] if isinstance(experiments, Experiment) else list(experiments)
        reactor = self.centred(runs) if self._lacks_reference else self
        options = {"parameters": self.parameters, **options}
        return Problem(reactor, experiments=runs, **options)

    @property
    def _lacks_reference(self) -> bool:
        thermal = (c for c, _ in self._constants if isinstance(c, Thermal))
        return self.reference is None and any(c.needs_reference for c in thermal)

    def _temperatures(self, run: Experiment) -> list[float]:
        if TEMPERATURE in run.measured:
            return [float(v) for v in run.measurements.of(TEMPERATURE)[1]]
        if TEMPERATURE in run.inputs:
            return [evaluate(run.inputs[TEMPERATURE], float(t)) for t in run.times]
        start = run.start.get(TEMPERATURE, self.temperature)
        return [float(start)] * len(run.times) if is_finite(start) else []  # type: ignore[arg-type]

    @property
    def _constants(self) -> list[tuple[Constant, Dimension]]:
        """All constants with their dimensions."""
        parted = (p.constants for p in (self.heat, self.catalyst) if p is not None)
        return [c for own in (*(r.constants for r in self.steps), *parted) for c in own]

    def __call__(self, times: Iterable[float]) -> Any:
        """The pyomo.dae model at these times."""
        if self._lacks_reference:
            raise ModelError(
                "Some constants of this reactor have no reference temperature. Give "
                "reference=350.0, or create the problem with reactor.problem(experiments), which "
                "chooses a reference temperature within the measured range."
            )
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        self._add_constants(m)
        self._add_states(m)
        self._add_parts(m)
        for place, reaction in enumerate(self.steps, start=1):
            m.add_component(f"r{place}", self._rate(m, reaction, place))
        self._add_inputs(m)
        for species, name in self._quantity.items():
            if species not in self.algebraic:
                self._add_balance(m, name, lambda t, s=species: self._slope(m, t, s))
        if self.catalyst is not None:
            catalyst = self.catalyst
            self._add_balance(m, ACTIVITY, lambda t: catalyst.slope(m, t, self._inside(m, t)))
        for place, name in enumerate(self._temperature_states):
            self._add_balance(m, name, lambda t, k=place: self._heat_slopes(m, t)[k])
        if self.algebraic:
            self._add_laws(m)
        return m

    @property
    def _quantity(self) -> dict[str, str]:
        """Species -> name of its state."""
        return {s: s for s in self.species}

    def _names(self) -> list[str]:
        """Every name that the model gets beside the parameters', for clashes."""
        thermal = [TEMPERATURE] if self.is_thermal else []
        rates = [f"r{place}" for place, _ in enumerate(self.steps, start=1)]
        starts = [f"{q}0" for s, q in self._quantity.items() if s in self.algebraic]
        active = [ACTIVITY] if self.catalyst is not None else []
        heat = () if self.heat is None else (*self._temperature_states[1:], *self.heat.inputs)
        centre = [REFERENCE] if self.reference is not None else []
        return ["t", *thermal, *centre, *self.species, *rates, *starts, *active, *heat]

    @property
    def _temperature_states(self) -> tuple[str, ...]:
        return () if self.heat is None else self.heat.states

    def _add_constants(self, m: Any) -> None:
        kelvin = self._unit(KELVIN)
        if self.heat is None and self.is_thermal:
            value = {} if self.temperature is None else {"default": float(self.temperature)}
            m.add_component(TEMPERATURE, pyo.Param(m.t, mutable=True, units=kelvin, **value))
        if self.reference is not None:
            m.add_component(REFERENCE, pyo.Param(initialize=float(self.reference), units=kelvin))
        units = {
            name: self._unit(own)
            for constant, dimension in self._constants
            for name, own in parts(constant, dimension)
        }
        for name in self.inputs:
            m.add_component(name, pyo.Param(m.t, mutable=True, units=units[name]))
        for name in self.parameters:
            lower, upper = bounds = self.bounds.get(name, (None, None))
            m.add_component(name, pyo.Var(bounds=bounds, units=units.get(name)))
            is_box = lower is not None and upper is not None
            middle = (lower + upper) / 2 if is_box else max(lower or 1.0, 1.0)  # type: ignore[operator]
            m.component(name).value = middle

    def _unit(self, dimension: Dimension) -> Any:
        """The unit of a dimension; None where there are none."""
        return None if self.units is None else self.units.of(dimension)

    def _inside(self, m: Any, t: float) -> dict[str, Any]:
        """Concentrations at a time."""
        return {s: m.component(s)[t] for s in self.species}

    def _rate(self, m: Any, reaction: Reaction, place: int) -> Any:
        slowed = self.catalyst is not None and self.catalyst.concerns(place)

        def rule(_: Any, t: float) -> Any:
            try:
                fresh = reaction.law.rate(m, t, self._inside(m, t), reaction.equation)
                return fresh * m.component(ACTIVITY)[t] if slowed else fresh
            except KeyError as error:
                own = isinstance(reaction.law, OwnLaw)
                remedy = (
                    ", which no reaction contains; name it in OwnLaw(..., modifiers=(...,))" * own
                )
                raise ModelError(
                    f"The rate law of '{reaction.text}' needs the species {error}{remedy}."
                ) from None

        return pyo.Expression(m.t, rule=rule)

    def _add_states(self, m: Any) -> None:
        """Add a concentration over time for each species, with the name of the species."""
        for species in self.species:
            m.add_component(species, pyo.Var(m.t, initialize=1.0, units=self._unit(CONCENTRATION)))

    def _add_parts(self, m: Any) -> None:
        """States and inputs of catalyst and heat balance."""
        if self.catalyst is not None:
            m.add_component(ACTIVITY, pyo.Var(m.t, initialize=1.0, units=self._unit(NONE)))
        for name in self._temperature_states:
            m.add_component(name, pyo.Var(m.t, initialize=300.0, units=self._unit(KELVIN)))
        for name, dimension in ({} if self.heat is None else self.heat.inputs).items():
            m.add_component(name, pyo.Param(m.t, mutable=True, units=self._unit(dimension)))

    def _add_inputs(self, m: Any) -> None:
        """Add the inputs that the experiment gives, except the temperature."""

    def _slope(self, m: Any, t: float, species: str) -> Any:
        """Slope of a state; here the net rate of production by all reactions."""
        return sum(
            r.made(m, t, species) * m.component(f"r{place}")[t]
            for place, r in enumerate(self.steps, start=1)
            if species in r.equation.net
        )

    def _heat_slopes(self, m: Any, t: float) -> list[Any]:
        """Slopes of temperature and jacket."""
        assert self.heat is not None
        moles = 1.0 if self.units is None else self.units.moles
        rates = [moles * m.component(f"r{k}")[t] for k in range(1, len(self.steps) + 1)]
        volume, inflow = self._held(m, t), self._inflow(m, t)
        return list(self.heat.slopes(m, t, rates, volume=volume, inflow=inflow))

    @property
    def _has_inflow(self) -> bool:
        """Whether something flows in that has a temperature."""
        return False

    def _inflow(self, m: Any, t: float) -> Any:
        """Inflow per time, divided by the volume of the contents."""
        return 0.0

    def _held(self, m: Any, t: float) -> Any:
        """The volume that exchanges heat; 1 where heat is counted by volume."""
        return 1.0

    def _add_balance(self, m: Any, name: str, slope: Any) -> None:
        """The slope `d<name>` of a variable over time, and its equation `balance_<name>`."""
        state, per_time = m.component(name), self._unit(Dimension(**{self.axis: -1}))
        unit = None if per_time is None else state[m.t.first()].get_units() * per_time
        m.add_component(f"d{name}", dae.DerivativeVar(state, units=unit))
        derivative = m.component(f"d{name}")
        equation = pyo.Constraint(m.t, rule=lambda _, t: derivative[t] == slope(t))
        m.add_component(f"balance_{name}", equation)

    def _fed(self, m: Any) -> dict[str, Any]:
        """Species -> Pyomo expression of what is fed of it per time, constant."""
        return {}

    def _add_laws(self, m: Any) -> None:
        """A law's sum is what it was, and what was fed; `<state>0` starts an algebraic species."""
        names, fed, first = self._quantity, self._fed(m), m.t.first()
        starts = {s: m.component(n)[first] for s, n in names.items()}
        for species in self.algebraic:
            name, unit = f"{names[species]}0", starts[species].get_units()
            m.add_component(name, pyo.Param(mutable=True, default=0.0, units=unit))
            starts[species] = m.component(name)

        def rule(_: Any, t: float, parts: Mapping[str, int]) -> Any:
            now = sum(n * m.component(names[s])[t] for s, n in parts.items())
            then = sum(n * starts[s] for s, n in parts.items())
            added = sum(n * fed[s] for s, n in parts.items() if s in fed)
            return now == then + added * (t - first)

        for place, law in enumerate(laws_for(self.algebraic, self.conservation), start=1):
            equation = pyo.Constraint(
                m.t, rule=lambda _, t, parts=law.coefficients: rule(_, t, parts)
            )
            m.add_component(f"conservation_{place}", equation)


def refuse_unknown(role: str, given: Iterable[Any], kind: str, known: Sequence[Any]) -> None:
    """Raise ModelError for names that are not known."""
    unknown_names = [name for name in given if name not in known]
    if unknown_names:
        raise ModelError(f"{role} has {unknown_names}; the {kind} are {list(known)}.")


@dataclass(frozen=True)
class Batch(Reactor):
    """dc/dt = net rate of production by the reactions; the states are concentrations.

    The species in `algebraic` are computed from conservation laws. Instead of a start value, each
    of them has a constant `<name>0`, which is 0 unless it is given as an input or estimated.

    See `Reactor` for the fields.
    """
