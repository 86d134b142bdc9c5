"""The registered benchmarks: `python -m bench NAME [options]`."""

import sys
from importlib import import_module

#: Name of a module of this package, and what it measures.
BENCHMARKS = {
    "gap": "step time of min-max, equal split and Megatron's rule against the proved optimum",
    "splits": "the exact split of stored pipelines: step time, bound, seconds",
    "fasop": "the plans of FASOP's public search against ours, and the seconds of our search",
    "pareto": "fronts over 80 and 4,912 clusters, and FASOP's best plans of all 80 beside ours",
    "study": "min-max splits against the simulated optimum, thousands of cases",
    "shares": "what unlike numbers of micro-batches per replica bring over even ones",
    "schedules": "what each pipeline schedule wins over 1F1B, and costs in memory, with its gap",
    "scaling": "time and gap of the exact search on 2 to 512 nodes",
    "workers": "two workers of Ray beside two processes, and many more of either on paper",
    "hard": "clusters of extreme links, zones and shares, against the best values known",
    "start": "seconds and memory of one command, from process start to exit",
    "replay": "throughput through failures: Oobleck's Table 2 from its published inputs",
    "switching": "switch plans of LLaMA-2 32B beside the published rule, with gap and seconds",
    "templates": "pipeline templates beside Oobleck's planner: seconds and quality",
    "fleets": "pipelines and micro-batches of 30 to 1,000 nodes, and recovery",
    "policies": "samples trained through failures by four recovery policies on our own plans",
    "accuracy": "the analytic model against published steps that no figure was fitted to",
    "experts": "mixtures of experts on 256 GPUs, solved, beside NVIDIA's degrees for DeepSeek-V3",
    "findings": "which published findings on large-scale training our simulated steps show",
    "calculon": "GPT-3 175B on 1,024 A100 by Calculon's model and by ours, kind by kind",
    "calculon_study": "our best plan of that, proved, beside the best of Calculon's",
    "piper": "the public planner Piper's values on its own graph and objective, reached and proved",
    "sailor": "Sailor's even splits beside our optimum on its clusters and layer times",
    "hotspa": "strategies per sequence length chosen from HotSPa's measured table, beside its own",
    "memory": "memory of our model beside measured, estimated and other models' figures",
    "calibrate": "fit of the efficiency figures in the GPU catalogue, and its errors",
}


def main() -> None:
    """Runs the benchmark that the first argument names, with the arguments after it."""
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        lines = [f"  {name:14} {what}" for name, what in BENCHMARKS.items()]
        sys.exit("\n".join(["usage: python -m bench NAME [options]; NAME is one of", *lines]))
    name = sys.argv.pop(1)
    import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
