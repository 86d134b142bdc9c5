"""A plan, what runs today beside it, which nodes help, and the files of a job."""

import hetplan

plan = hetplan.solve("instances/hetero_small.yaml")
print(plan)  # in a notebook: the table of `solve`, and one step drawn

today = hetplan.evaluate(
    "instances/hetero_small.yaml", degrees="tp=4,pp=2,micro_batch=4", order="a100,a10*3"
)
print(f"{today.solution.step_time_s / plan.step_time_s:.2f} times as long")
for change in today.judged.changes[:2]:
    print(change.change, f"{change.step_time_s:.3f} s")

front = hetplan.pareto("instances/hetero_small.yaml", subsets=True, gap=0.05)
print(front)
for row in front.rows()[:3]:  # to_frame() for pandas
    print(row["nodes of a100"], row["nodes of a10"], f"{row['step_time_s']:.3f} s")

times = [line for line in hetplan.diff(plan, today.solution).splitlines() if " time" in line]
print(*times, sep="\n")
files = hetplan.export(plan, "deepspeed", own_model=True)
print(sorted(files))
hetplan.report(plan, "report.html")
