"""Names of CasADi's elementary operations."""

import casadi as ca

OPERATION_NAMES: dict[int, str] = {
    getattr(ca, n): n.removeprefix("OP_") for n in dir(ca) if n.startswith("OP_")
}
"""What `Function.instruction_id` returns -> CasADi's name of it, without OP_."""
