"""Step time and price of every mix of nodes; the mixes that no other beats in both are marked."""

from itertools import product

import hetplan

largest = hetplan.load("sweep.yaml")
groups = [group["name"] for group in largest.fields["cluster"]["groups"]]
most = [group["nodes"] for group in largest.fields["cluster"]["groups"]]

found = []
for nodes in product(*(range(number + 1) for number in most)):
    if not any(nodes):
        continue
    cluster = largest.with_(nodes=dict(zip(groups, nodes, strict=True)))
    solution = hetplan.solve(cluster, time_limit_s=20)
    plan = solution.document
    if plan.step_time_s is not None and plan.cost_usd_per_step is not None:
        found.append((plan.step_time_s, plan.cost_usd_per_step, nodes, solution.status))

print("nodes of", *groups, " step s  USD per 1,000 steps")
for time_s, cost_usd, nodes, status in sorted(found):
    better = {(t, c) for t, c, *_ in found if t <= time_s and c <= cost_usd}
    counts = "  ".join(f"{n:>6}" for n in nodes)
    mark = "" if len(better) > 1 else "  best"
    print(f"{counts}  {time_s:8.3f}  {1000 * cost_usd:10.3f}  {status}{mark}")
