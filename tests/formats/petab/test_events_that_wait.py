"""Events of SBML that wait, keep values or are given up; numbers and functions of MathML."""

import libsbml
import numpy as np
import pytest
from small import decay, law, write

import igpe

TIMES = (0.0, 0.5, 1.0, 2.0, 4.0)


def event(model, when, formula, delay, *, kept=True, persistent=True):
    e = model.createEvent()
    e.setId("waits")
    e.setUseValuesFromTriggerTime(kept)
    trigger = e.createTrigger()
    trigger.setInitialValue(True)
    trigger.setPersistent(persistent)
    trigger.setMath(libsbml.parseL3Formula(when))
    e.createDelay().setMath(libsbml.parseL3Formula(delay))
    assignment = e.createEventAssignment()
    assignment.setVariable("A")
    assignment.setMath(libsbml.parseL3Formula(formula))


def of_a(folder, document):
    found = igpe.petab.petab_simulations(igpe.petab.read_petab(write(folder, document)))
    return found.loc[found["observableId"] == "oA", "simulation"].to_numpy()


@pytest.mark.parametrize("when", ["time > 0.7", "B > 6 * (1 - exp(-0.35))"])
def test_values_from_when_the_trigger_became_true(tmp_path, when):
    document = decay()
    event(document.getModel(), when, "A + 1", "0.8")
    kept = 3 * np.exp(-0.35) + 1
    wanted = [3, 3 * np.exp(-0.25), 3 * np.exp(-0.5), kept * np.exp(-0.25), kept * np.exp(-1.25)]
    np.testing.assert_allclose(of_a(tmp_path, document), wanted, rtol=1e-6)


@pytest.mark.parametrize(("delay", "happens"), [("0.2", True), ("0.9", False)])
def test_given_up_where_the_trigger_becomes_false_before(tmp_path, delay, happens):
    document = decay()
    event(document.getModel(), "(A < 2.5) && (A > 2)", "1", delay, kept=False, persistent=False)
    found = of_a(tmp_path, document)
    begin = np.log(3 / 2.5) / 0.5 + float(delay)
    last = np.exp(-0.5 * (4 - begin)) if happens else 3 * np.exp(-2.0)
    assert found[-1] == pytest.approx(last, rel=1e-6)


def test_a_second_trigger_before_the_delay_is_no_value(tmp_path):
    document = decay()
    event(document.getModel(), "sin(6 * time) > 0.5", "A + 1", "1.5")
    with np.errstate(all="ignore"):
        found = of_a(tmp_path, document)
    assert not np.isfinite(found[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "factor"),
    [
        ("avogadro / 6.02214179e23", 1.0),
        ("coth(1)", 1 / np.tanh(1)),
        ("sec(time - time + A - A)", 1.0),
        ("arccot(1 + time - time)", np.pi / 4),
    ],
)
def test_functions_and_constants(tmp_path, formula, factor):
    document = decay()
    law(document.getModel(), f"2 * k * A * ({formula})")
    np.testing.assert_allclose(
        of_a(tmp_path, document), 3 * np.exp(-0.5 * factor * np.array(TIMES)), rtol=1e-6
    )
