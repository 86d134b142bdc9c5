"""A plan as launchers see it: ranks, hosts, pieces, names."""

from solver.export.job import Job, host_faults, host_names, name_clash
from tests.export.stored import check_exports
from tests.export_cases import UNEVEN, instance_of

test_ranks_and_pieces_are_as_stored = check_exports("megatron")
test_modules_and_sums_are_as_stored = check_exports("torchtitan")


def test_hosts_have_names_of_their_own() -> None:
    """Numbered within their group; groups whose names become one word clash."""
    cluster = instance_of().cluster
    assert host_names(cluster) == (("big-0",), ("small-0",), ("small-1",))
    assert name_clash(cluster) is None
    groups = (cluster.groups[0].but(name="a b"), cluster.groups[1].but(name="a-b"))
    assert "the node groups a b and a-b" in (name_clash(cluster.but(groups=groups)) or "")


def test_ranks_of_a_host_follow_each_other() -> None:
    """Stages 0 and 2 on one host, and stage 1 on another, cannot be laid out."""
    assert list(host_faults(UNEVEN)) == []
    replicas = []
    for replica in UNEVEN.plan.replicas:
        groups = [replica.stages[k].group for k in (1, 0, 2, 3)]
        pairs = zip(replica.stages, groups, strict=True)
        stages = tuple(stage.model_copy(update={"group": group}) for stage, group in pairs)
        replicas.append(replica.model_copy(update={"stages": stages}))
    torn = Job(UNEVEN.instance, UNEVEN.plan.model_copy(update={"replicas": tuple(replicas)}))
    (fault,) = host_faults(torn)
    assert fault.found == "a host whose ranks do not follow each other"
