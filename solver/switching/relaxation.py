"""A switch by linear programming: the plan that divides classes as it says, and its bound."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from formulations.milp.switch_shares import Built, Choices
from formulations.switching.switch import Demand, Sending, Switch
from solver.backends import highs
from solver.options import SolveOptions
from solver.result import Status
from solver.switching.prices import SwitchBound, priced_bound

#: Owners and GPUs that forward, all demands together: some seconds of HiGHS.
MOST_CHOICES = 20_000
#: Sum of the prices of a bound, which are whole numbers.
PRICES = 10**9

Shares = list[tuple[int, int, int]]  #: GPU, begin, end: of the bytes of a demand


def relaxed_plan(switch: Switch) -> tuple[list[Sending], SwitchBound] | None:
    """Plan and bound, both best where all choices are in the programme; None if it is too large."""
    choices = _choices(switch)
    if choices is None:
        return None
    built = Built(switch, choices)
    outcome = highs.run(built.model, SolveOptions())
    if outcome.status is not Status.OPTIMAL or outcome.values is None or outcome.duals is None:
        return None
    values = {
        variable.name: value
        for variable, value in zip(built.model.variables(), outcome.values, strict=True)
    }
    rows = zip(built.lines, outcome.duals, strict=False)  # those of the lines come first
    prices = {line: round(PRICES * dual) for line, dual in rows if dual > 0}
    plan: list[Sending] = []
    for d, (demand, _, _) in enumerate(choices):
        sent = {gpu: values[variable.name] for gpu, variable in built.sent[d].items()}
        passed = {gpu: values[variable.name] for gpu, variable in built.passed[d].items()}
        width = switch.classes[demand.number].element_bytes
        plan += _sendings(demand, sent, passed, width)
    return plan, priced_bound(switch, prices)


def _choices(switch: Switch) -> Choices | None:
    """All senders and receivers, or of each demand as many as are allowed in all."""
    most = MOST_CHOICES // max(len(switch.demands), 1)
    if most < 2:
        return None
    found = []
    for d, demand in enumerate(switch.demands):
        receivers = demand.receivers if len(demand.receivers) > 1 else ()
        both = []
        for gpus in (demand.owners, receivers):
            room = most if not receivers else most // 2
            first = d % len(gpus) if len(gpus) > room else 0  # others for the next demand
            both.append([*gpus[first:], *gpus[:first]][:room])
        found.append((demand, both[0], both[1]))
    return found


def _sendings(
    demand: Demand, sent: Mapping[int, float], passed: Mapping[int, float], width: int
) -> list[Sending]:
    """A mixture of sending all copies and of forwarding all but one, as `sent` and `passed` say."""
    copies, size = len(demand.receivers), demand.size_bytes
    forwarded = sum(passed.values()) / max(copies - 1, 1)
    middle = width * round(min(forwarded, size) / width)  # forwarded before, sent to each behind
    entries = _spread(sent, [(middle, 1), (size - middle, copies)], width)
    vias = _spread(passed, [(middle, 1)], width)
    found = []
    edges = sorted({0, middle, size, *(end for _, _, end in (*entries, *vias))})
    for begin, end in pairwise(edges):
        source = _at(entries, begin)
        via = _at(vias, begin) if begin < middle else None
        found.append(Sending(demand.number, begin, end, source, via, demand.receivers))
    return found


def _spread(amounts: Mapping[int, float], parts: Sequence[tuple[int, int]], width: int) -> Shares:
    """Consecutive ranges for the GPUs; a byte of a part takes so many bytes of the amounts."""
    total = sum(max(amount, 0.0) for amount in amounts.values()) or 1.0
    wanted, found = sum(size * copies for size, copies in parts), Shares()
    used = 0.0
    begin = 0
    for gpu, amount in amounts.items():
        used += max(amount, 0.0)
        end = _position(used * wanted / total, parts, width)
        if end > begin:
            found.append((gpu, begin, end))
            begin = end
    return found


def _position(used: float, parts: Sequence[tuple[int, int]], width: int) -> int:
    """Bytes that such an amount is for, whole elements."""
    begin = 0.0
    for size, copies in parts:
        taken = min(used, size * copies)
        begin += taken / copies
        used -= taken
    return min(width * round(begin / width), sum(size for size, _ in parts))


def _at(shares: Shares, begin: int) -> int:
    """The GPU whose range a byte lies in."""
    return next(gpu for gpu, first, end in shares if first <= begin < end)
