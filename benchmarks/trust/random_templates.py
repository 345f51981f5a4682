"""Models that everybody writes, with random numbers: the textbook part of the random models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trust.random_models import Algebraic, Input


@dataclass
class Template:
    """A model as text; see `random_models.Model` for the words."""

    horizon: float
    states: dict[str, str]
    start: dict[str, float]
    parameters: dict[str, float]
    size: dict[str, float]
    definitions: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    cuts: tuple[float, ...] = ()


Random = np.random.Generator


def _of(r: Random, **middles: float) -> dict[str, float]:
    """Each number about its middle."""
    return {n: float(f"{v * r.uniform(0.6, 1.6):.4g}") for n, v in middles.items()}


def lotka_volterra(r: Random) -> Template:
    """Prey and predators."""
    p = _of(r, a=1.0, b=0.1, c=1.5, d=0.075)
    states = {"prey": "a*prey - b*prey*predator", "predator": "d*prey*predator - c*predator"}
    return Template(15.0, states, {"prey": 10.0, "predator": 5.0}, p, {"prey": 10, "predator": 5})


def robertson(r: Random) -> Template:
    """Robertson's stiff kinetics, the third species by a balance."""
    p = _of(r, k1=0.04, k2=3e7, k3=1e4)
    states = {"y1": "-k1*y1 + k3*y2*y3", "y2": "k1*y1 - k3*y2*y3 - k2*y2**2"}
    rest = Algebraic(["y3"], [("y1 + y2 + y3", "1")], [0.1])
    horizon = float(10 ** r.uniform(1, 5))
    return Template(
        horizon, states, {"y1": 1.0, "y2": 0.0}, p, {"y1": 1.0, "y2": 1e-5}, {"y": rest}
    )


def van_der_pol(r: Random) -> Template:
    """A relaxation oscillator."""
    mu = float(f"{10 ** r.uniform(0, 2.3):.4g}")
    states = {"x": "v", "v": "mu*(1 - x**2)*v - x"}
    return Template(1.2 * mu + 5, states, {"x": 2.0, "v": 0.0}, {"mu": mu}, {"x": 2.0, "v": mu})


def enzyme(r: Random) -> Template:
    """The full mechanism of Michaelis and Menten: E + S <-> C -> E + P."""
    p = _of(r, kon=1e6, koff=1e2, kcat=10.0)
    states = {
        "S": "-kon*E*S + koff*C",
        "E": "-kon*E*S + (koff + kcat)*C",
        "C": "kon*E*S - (koff + kcat)*C",
        "P": "kcat*C",
    }
    size = {"S": 1e-4, "E": 1e-6, "C": 1e-6, "P": 1e-4}
    return Template(20.0, states, {"S": 1e-4, "E": 1e-6, "C": 0.0, "P": 0.0}, p, size)


def cooled_tank(r: Random) -> Template:
    """A cooled stirred tank with an exothermic reaction; the feed temperature steps."""
    p = _of(r, k0=7.2e10, q=100.0, UA=5e4)
    p |= {"E_R": 8750.0, "Tc": float(r.uniform(285, 300))}
    rate = "k0*exp(-E_R/T)*Ca"
    states = {
        "Ca": "q/100*(1 - Ca) - rate",
        "T": "q/100*(Tf - T) + 5e4/(1000*0.239)*rate + UA/(100*1000*0.239)*(Tc - T)",
    }
    feed = Input("steps", times=(0.0, 1.0, 3.0), values=(350.0, float(r.uniform(340, 360)), 350.0))
    return Template(
        5.0,
        states,
        {"Ca": 0.8, "T": 330.0},
        p,
        {"Ca": 1.0, "T": 350.0},
        {"rate": rate},
        {"Tf": feed},
    )


def fed_batch(r: Random) -> Template:
    """Growth after Monod in a fed batch whose feed starts late."""
    p = _of(r, mu_max=0.4, Ks=0.2, Y=0.5)
    at = float(f"{r.uniform(3, 8):.3g}")
    states = {
        "X": "mu*X - F/V*X",
        "G": "-mu*X/Y + F/V*(20 - G)",
        "V": "F",
    }
    definitions = {"mu": "mu_max*G/(Ks + G)", "F": f"(0.05 if tc >= {at!r} else 0.0)"}
    if r.random() < 0.5:
        definitions["F"] = f"Expr_if(tc >= {at!r}, 0.02*exp(0.1*(t - {at!r})), 0)"
    start, size = {"X": 0.1, "G": 5.0, "V": 1.0}, {"X": 5.0, "G": 5.0, "V": 1.0}
    return Template(16.0, states, start, p, size, definitions, {}, (at,))


def absorption(r: Random) -> Template:
    """A drug: absorbed, or infused for some hours, then eliminated."""
    p = _of(r, ka=1.2, CL=3.0, Vd=20.0)
    end = float(f"{r.uniform(0.5, 4):.3g}")
    dose = f"(100/{end!r} if tc < {end!r} else 0)"
    states = {"gut": f"{dose} - ka*gut", "c": "(ka*gut - CL*c)/Vd"}
    return Template(
        24.0, states, {"gut": 0.0, "c": 0.0}, p, {"gut": 50.0, "c": 3.0}, {}, {}, (end,)
    )


def repressilator(r: Random) -> Template:
    """Three genes, each represses the next."""
    p = _of(r, a=50.0, g=1.0, b=2.0) | {"n": float(f"{r.uniform(1.5, 3):.3g}")}
    states = {
        f"p{i}": f"a/(1 + power(p{j}, n)) - g*p{i} + 0.01*b" for i, j in ((1, 3), (2, 1), (3, 2))
    }
    start, size = {"p1": 1.0, "p2": 5.0, "p3": 0.0}, dict.fromkeys(("p1", "p2", "p3"), 10.0)
    return Template(20.0, states, start, p, size)


def epidemic(r: Random) -> Template:
    """Susceptible, infected, recovered; a lockdown halves the contacts."""
    p = _of(r, beta=0.5, gamma=0.1)
    at = float(f"{r.uniform(15, 60):.3g}")
    states = {
        "S": f"-beta*Expr_if(tc < {at!r}, 1, 0.4)*S*I/N",
        "I": f"beta*Expr_if(tc < {at!r}, 1, 0.4)*S*I/N - gamma*I",
        "R": "gamma*I",
    }
    n = 1e6
    return Template(
        120.0, states, {"S": n - 10, "I": 10.0, "R": 0.0}, p | {"N": n}, dict.fromkeys("SIR", n),
        {}, {}, (at,),
    )  # fmt: skip


def falling(r: Random) -> Template:
    """A fall with drag, by height and velocity."""
    p = _of(r, g=9.81, c=0.02)
    states = {"h": "v", "v": "-g - c*abs(v)*v"}
    return Template(8.0, states, {"h": 500.0, "v": 30.0}, p, {"h": 500.0, "v": 30.0})


def tank(r: Random) -> Template:
    """A tank that drains through a hole while it is filled by a ramp."""
    p = _of(r, cd=0.05, area=1.0)
    states = {"h": "(qin - cd*sqrt(2*9.81*h))/area"}
    feed = Input("linear", times=(0.0, 20.0, 40.0), values=(0.05, 0.3, 0.1))
    return Template(
        40.0, states, {"h": float(r.choice([0.0, 0.5]))}, p, {"h": 0.5}, {}, {"qin": feed}
    )


def neuron(r: Random) -> Template:
    """FitzHugh and Nagumo's neuron with a pulse of current."""
    p = _of(r, a=0.7, b=0.8, tau=12.5)
    at, width = float(f"{r.uniform(20, 60):.3g}"), float(f"{10 ** r.uniform(-1, 1):.3g}")
    states = {
        "v": f"v - v**3/3 - w + 0.9*exp(-((t - {at!r})/{width!r})**2)",
        "w": "(v + a - b*w)/tau",
    }
    cuts = tuple(at + k * width for k in (-6, -3, 0, 3, 6))
    return Template(100.0, states, {"v": -1.2, "w": -0.62}, p, {"v": 1, "w": 1}, {}, {}, cuts)


def deactivation(r: Random) -> Template:
    """A reaction in seconds over a catalyst that deactivates, temperature a ramp."""
    p = _of(r, k0=2e3, kd=4e-4) | {"Ea": float(f"{r.uniform(4e4, 9e4):.4g}")}
    p["k0"] = float(f"{np.exp(p['Ea'] / (8.314 * 600)) * 1e-3:.4g}")
    states = {"A": "-k0*exp(-Ea/(8.314*T))*exp(-kd*t)*A", "B": "k0*exp(-Ea/(8.314*T))*exp(-kd*t)*A"}
    ramp = Input("linear", times=(0.0, 5000.0), values=(590.0, 610.0))
    return Template(5000.0, states, {"A": 1.0, "B": 0.0}, p, {"A": 1.0, "B": 1.0}, {}, {"T": ramp})


def acid(r: Random) -> Template:
    """Hydrolysis whose rate follows the hydrogen ion, by a charge balance in mol/L."""
    p = _of(r, k=20.0, Ka=2e-5)
    states = {"est": "-k*est*h", "ac": "k*est*h"}
    h = Algebraic(["h"], [("h", "ac*Ka/(Ka + h) + 1e-14/h")], [1e-3])
    size = {"est": 0.1, "ac": 0.1}
    return Template(3e3, states, {"est": 0.1, "ac": 1e-3}, p, size, {"hydrogen": h})


def evaporation(r: Random) -> Template:
    """Heated liquid whose vapour pressure follows Antoine."""
    p = _of(r, UA=500.0, kv=1e-6)
    states = {"T": "(UA*(400 - T) - 2.26e6*flow)/(4180*10)"}
    flow = "kv*10**(10.196 - 1730.63/(T - 39.724))"
    return Template(500.0, states, {"T": 300.0}, p, {"T": 300.0}, {"flow": flow})


def diffusion(r: Random) -> Template:
    """A bar in ten cells, heated at one end from a known time on."""
    p = _of(r, D=1e-5, q=2.0)
    at = float(f"{r.uniform(50, 300):.3g}")
    cell = 0.01
    states = {}
    for i in range(1, 11):
        left = f"(c{i - 1} - c{i})" if i > 1 else f"({cell!r}*Expr_if(tc >= {at!r}, q, 0))"
        right = f"(c{i + 1} - c{i})" if i < 10 else f"(20 - c{i})"
        states[f"c{i}"] = f"D/{cell!r}**2*({left} + {right})"
    start = dict.fromkeys(states, 20.0)
    return Template(1000.0, states, start, p, start, {}, {}, (at,))


def heat_up(r: Random) -> Template:
    """A batch that is heated along a ramp to a known temperature, then held; in minutes and kJ."""
    p = _of(r, lnk=25.0, Ea=75.0) | {"n": float(r.choice([1.0, 2.0, 1.5]))}
    p["lnk"] = float(f"{p['Ea'] / (8.314e-3 * 340) - 3:.5g}")
    end = float(f"{r.uniform(10, 40):.3g}")
    temperature = f"(298.15 + 45*min(t, {end!r})/{end!r})"
    if r.random() < 0.5:
        temperature = f"Expr_if(tc < {end!r}, 298.15 + 45*t/{end!r}, 343.15)"
    states = {"A": "-rate", "B": "rate"}
    rate = "exp(lnk - Ea/(8.314e-3*T))*power(A, n)"
    definitions = {"T": temperature, "rate": rate}
    start, size = {"A": 2.0, "B": 0.0}, {"A": 2.0, "B": 2.0}
    return Template(120.0, states, start, p, size, definitions, {}, (end,))


TEMPLATES: tuple[Callable[[Random], Template], ...] = (
    lotka_volterra,
    robertson,
    van_der_pol,
    enzyme,
    cooled_tank,
    fed_batch,
    absorption,
    repressilator,
    epidemic,
    falling,
    tank,
    neuron,
    deactivation,
    acid,
    evaporation,
    diffusion,
    heat_up,
)
