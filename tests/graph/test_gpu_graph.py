"""Where stages of free size may stand: counted by hand, and of drawn places."""

from formulations.node_sharing import NodeSplit
from solver.graph.gpu_graph import GpuGraph
from solver.graph.places import places_of
from solver.graph.problem import Intervals
from tests.conftest import present
from tests.graph.drawn import staged_tables
from tests.recorded import Cases, digest, recorded
from tests.template_cases import finals_of, place_costs_of


@recorded("gpu_graph")
def test_graphs_are_the_recorded_ones() -> Cases:
    """Numbers of stages, steps, and a template of the first ones; of both ways to split."""
    graphs = {
        f"{split} {seed} {n}": GpuGraph(places, finals)
        for split in NodeSplit
        for seed in range(5)
        for places in [place_costs_of(seed, split).several]
        for n, finals in finals_of(places).items()
    }
    for name, tables in staged_tables().items():
        places = places_of(Intervals(tables), present(tables.by_place))
        graphs[name] = GpuGraph(places, [tables.config.nodes_used])
    for name, graph in graphs.items():
        every = [step for steps in graph.steps.values() for step in steps]
        path, state = [], graph.start
        while steps := graph.steps[state]:
            path.append(steps[-1])
            state = steps[-1].after
        alone = name in staged_tables() or not graph.numbers
        template = None if alone else graph.template(path, range(len(path) + 1), 4)
        follows = [graph.may_be_followed(s, n) for s in graph.steps for n in range(4)]
        yield name, [graph.numbers, len(every), digest([every, template, follows])]
