"""Promises of solver.switch_document: the figures that follow from what is sent."""

from formulations.switching.shards import Layout, Seat
from formulations.switching.switch import Line, Sending, Volumes, switch_of
from solver.switch_document import switch_figures
from tests.switch_cases import cluster, machines, tiny_model


def test_figures_of_sendings_by_hand() -> None:
    """S bytes go to node b once, by way of b-0:0, and from there to b-0:1; 1 GB/s everywhere.

    b-0:0 receives S and forwards S; the bound rests on a port or link that carries S: S ns. The
    rule sends two copies over the link: 2 S.
    """
    model, nodes = tiny_model(0), [machines(1, 2, 1e9, 1e9, name=name) for name in "ab"]
    machines_, layers = cluster(*nodes), (0, len(model.layers))
    before = Layout((Seat(layers, 1, (0,)),))
    after = Layout((Seat(layers, 1, (2,)), Seat(layers, 1, (3,))))
    switch = switch_of(machines_, model, before, after, ["parameters"])
    size = 2 * sum(layer.parameters for layer in model.layers)
    sendings = [Sending(0, 0, size, 0, 2, (2, 3))]
    figures = switch_figures(switch, sendings)
    assert figures["time_s"] == figures["lower_bound_s"] == size / 1e9
    assert (figures["gap"], figures["published_s"]) == (0.0, 2 * size / 1e9)
    devices = Volumes(0, 0, size), Volumes(2, size, 0, 0, size), Volumes(3, 0, 0, size)
    assert figures["devices"] == devices
    assert figures["bound_by"] == (Line("send", 0),)


def test_links_between_zones_have_the_numbers_of_both() -> None:
    """The slow link from zone a to zone b bounds what one GPU sends to the other."""
    model, nodes = tiny_model(0), [machines(1, 1, name=zone, zone=zone) for zone in "ab"]
    machines_, layers = cluster(*nodes, between_zones=1e6), (0, len(model.layers))
    ends = Layout((Seat(layers, 1, (0,)),)), Layout((Seat(layers, 1, (1,)),))
    switch = switch_of(machines_, model, *ends, ["parameters"])
    figures = switch_figures(switch, [demand.direct() for demand in switch.demands])
    assert figures["bound_by"] == (Line("zone", 0, 1),)
