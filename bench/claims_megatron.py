"""Findings of Narayanan et al. (SC 2021, arXiv 2104.04473) on Megatron-LM and A100-80."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.claims import (
    FOLDER,
    Outcome,
    Point,
    Study,
    Values,
    best,
    falls,
    speed,
    throughput,
)
from bench.gpt_rows import MEGATRON_RUNS, MEGATRON_VOCABULARY
from bench.published_times import gpt
from bench.records import json_of
from formulations.instance.load import load_instance
from formulations.instance.machines import gpu_catalogue

PAPER = "Narayanan et al. 2021"
BATCH = "workload.global_batch"
#: Of throughput at equal batch, as published.
MOST_LOST = 1 / 3


def tensor_inside() -> Study:
    """Figure 13."""
    degrees = ((2, 32), (4, 16), (8, 8), (16, 4), (32, 2))
    points = [
        Point(
            f"batch {batch}",
            f"{tp} x {pp}",
            "megatron_162b" if tp <= 8 else "megatron_162b_tensor_across",
            {"tp": tp, "pp": pp},
            {BATCH: batch},
        )
        for batch in (32, 128)
        for tp, pp in degrees
    ]
    return Study(
        "tensor inside, pipeline across",
        "162 B on 64 A100: tensor parallel up to the node and pipeline across is fastest",
        f"{PAPER}, figure 13",
        tuple(points),
        "TFLOP/s per GPU, tp x pp",
        lambda values: {name: best(own) == "8 x 8" for name, own in values.items()},
        note="174 TFLOP/s per GPU at batch 128, 171 and 150 with tp 4 and 16; the search chooses"
        " it too",
    )


def data_first() -> Study:
    """Figures 14 and 15; tensor groups across nodes are left out."""
    options = [("pp", pp) for pp in (2, 4, 8, 16, 32)] + [("tp", tp) for tp in (2, 4, 8)]
    points = [
        Point(
            f"{name}, batch {batch}", str(degree), "megatron_5_9b", {name: degree}, {BATCH: batch}
        )
        for batch in (32, 512)
        for name, degree in options
    ]
    return Study(
        "data parallel first",
        "5.9 B on 64 A100: with as little model parallelism as fits, the rest data parallel",
        f"{PAPER}, figures 14 and 15",
        tuple(points),
        "TFLOP/s per GPU by degree of model parallelism",
        lambda values: {name: falls(own) for name, own in values.items()},
        note="speed falls with tp and pp, and the search chooses dp 32. But at batch 32 tp 4 is 2 %"
        " ahead of tp 2: layers measured on vTrain's A100 say so of this width; with the curve"
        " alone tp 2 was ahead",
    )


#: Sizes, and pp of PTD-P, whose tp is 8.
AGAINST_ZERO_3 = {
    "175 B": (gpt(12288, 96, 96, 2048, MEGATRON_VOCABULARY), 12),
    "530 B": (gpt(20480, 128, 105, 2048, MEGATRON_VOCABULARY), 35),
}
#: Model; GPUs, sequences per step; of ZeRO 3 the same and the sequences of a micro-batch; TFLOP/s
#: per GPU of ZeRO 3 and of PTD-P.
TABLE_2 = (
    ("175 B", 384, 1536, 384, 1536, 4, 144, 153),
    ("175 B", 768, 1536, 768, 1536, 2, 88, 149),
    ("175 B", 1536, 1536, 1536, 1536, 1, 44, 141),
    ("530 B", 560, 2240, 640, 2560, 4, 138, 171),
    ("530 B", 1120, 2240, 1120, 2240, 2, 98, 167),
    ("530 B", 2240, 2240, 2240, 2240, 1, 48, 159),
)


def against_zero_3() -> Study:
    """Table 2 and figure 10."""
    points, published = list[Point](), Values()
    for model, gpus, batch, zero_gpus, zero_batch, size, zero_3, ptd_p in TABLE_2:
        workload, pp = AGAINST_ZERO_3[model]
        sharded, split = {"zero": 3, "micro_batch": size}, {"tp": 8, "pp": pp}
        for series, config, on, sequences, teraflops in (
            (f"ZeRO 3, {model}", sharded, zero_gpus, zero_batch, zero_3),
            (f"PTD-P, {model}", split, gpus, batch, ptd_p),
        ):
            changes = {
                "workload": workload.but(global_batch=sequences),
                "cluster.groups.0.nodes": on // 8,
            }
            points.append(Point(series, str(gpus), "megatron_5_9b", config, changes))
            published.setdefault(f"{series}, published", {})[str(gpus)] = teraflops

    def judge(values: Values) -> dict[str, bool]:
        ratios = [
            value / values[f"PTD-P, {model}, published"][gpus]
            for model in AGAINST_ZERO_3
            for gpus, value in values[f"PTD-P, {model}"].items()
        ]
        lead = {
            gpus: values["PTD-P, 175 B"][gpus] / value
            for gpus, value in values["ZeRO 3, 175 B"].items()
        }
        return {
            "PTD-P within 3 %": all(abs(ratio - 1) <= 0.03 for ratio in ratios),
            "ahead on the most GPUs": lead["1536"] > 1,
            "further ahead on more GPUs": falls(dict(reversed(lead.items()))),
            "ahead on 384 GPUs": lead["384"] > 1,
        }

    return Study(
        "PTD-P against ZeRO 3",
        "175 and 530 B on 384 to 2,240 A100: PTD-P is ahead of ZeRO 3 alone, by 6 and 24 % on the"
        " fewest GPUs, and by more on more",
        f"{PAPER}, table 2 and figure 10",
        tuple(points),
        "TFLOP/s per GPU by GPUs",
        judge,
        lambda outcomes: throughput(outcomes) | published,
        "PTD-P comes out, ZeRO 3 is too fast by 20, 67 and 155 %. Beside products (14 s for each"
        " sequence of a micro-batch) its published steps take 26, 39 and 53 s, ours 12 s:"
        " our rings reach the nodes' bandwidth over any number of nodes, and do not slow down with"
        " their length. Copies of what is gathered (26.5 % of kernel time: Cheng et al. 2024) are"
        " not in our model either. 530 B with"
        " micro-batches of 4 does not fit by our count",
    )


BATCHES = (12, 24, 36, 48, 60)
GPT3 = {"tp": 8, "pp": 12}
CHUNKED = GPT3 | {"schedule": "interleaved", "vpp": 4}


def interleaving() -> Study:
    """Figure 12."""
    points = [
        Point(name, str(batch), "megatron_175b", config, {BATCH: batch})
        for name, config in (("1F1B", GPT3), ("interleaved", CHUNKED))
        for batch in BATCHES
    ]

    def judge(values: Values) -> dict[str, bool]:
        plain, chunked = values["1F1B"], values["interleaved"]
        gains = {batch: chunked[batch] / plain[batch] for batch in plain}
        return {"over 10 % faster": min(gains.values()) > 1.1, "falls with batch": falls(gains)}

    return Study(
        "interleaving",
        "175 B on 96 A100: interleaving is more than 10 % faster, and less so with larger batches",
        f"{PAPER}, figure 12 and abstract",
        tuple(points),
        "TFLOP/s per GPU by batch",
        judge,
        note="52 % at batch 12, 12 % at 60",
    )


def scatter_gather() -> Study:
    """Figure 18, with sends that run beside computation, our default, and with others."""
    links = "cluster.groups.0.inter_node"
    full = load_instance(FOLDER / "megatron_175b.yaml").cluster.groups[0].inter_node
    half = {"bandwidth_bytes_per_s": full.bandwidth_bytes_per_s / 2, "latency_s": full.latency_s}
    kinds: dict[str, dict[str, Any]] = {
        "sends overlap": {"search.blocking_sends": False},
        "sends block": {"search.blocking_sends": True},
        "at half the bandwidth": {"search.blocking_sends": True, links: half},
    }
    points = [
        Point(
            f"{name}, {'on' if on else 'off'}",
            str(batch),
            "megatron_175b",
            CHUNKED,
            changes | {BATCH: batch, "search.scatter_gather": on},
        )
        for name, changes in kinds.items()
        for on in (False, True)
        for batch in BATCHES
    ]

    def gains(outcomes: Sequence[Outcome]) -> Values:
        found = throughput(outcomes)
        return {
            name: {
                batch: 100 * (value / found[f"{name}, off"][batch] - 1)
                for batch, value in found[f"{name}, on"].items()
            }
            for name in kinds
        }

    def judge(values: Values) -> dict[str, bool]:
        least = min(gain for own in values.values() for gain in own.values())
        small, large = str(BATCHES[0]), str(BATCHES[-1])
        grows = {name: own[large] >= own[small] for name, own in values.items()}
        return {
            "faster": least > 0,
            "most with large batches, sends overlap": grows["sends overlap"],
            "most with large batches, sends block": grows["sends block"],
            "about 11 %, at half the bandwidth": 10 < values["at half the bandwidth"][large] < 13,
        }

    return Study(
        "scatter and gather",
        "175 B on 96 A100, interleaved: scatter and gather is faster, by 11 % with large batches",
        f"{PAPER}, figure 18",
        tuple(points),
        "% faster, by batch",
        judge,
        gains,
        "ours: 5 % with small batches, 1 % with large ones, for sends overlap with computation once"
        " the pipeline is full; 6 % with all batches if sends block (search.blocking_sends). 12 %"
        " if messages then get half of the links' bandwidth: what they get would have to be"
        " published",
    )


def _recompute_points(gpu: str | None) -> Iterator[Point]:
    changes = {"cluster.groups.0.gpu": gpu_catalogue()[gpu].model_dump()} if gpu else {}
    for way in ("none", "full"):
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            config = {"tp": 8, "pp": 16, "recompute": (way,)}
            yield Point(way, str(batch), "megatron_145b", config, {BATCH: batch} | changes)


def pays(values: Values) -> dict[str, bool]:
    """At equal batch up to a third slower; larger ones, which need it, twice as fast."""
    none, full = values["none"], values["full"]
    lost = [1 - full[batch] / value for batch, value in none.items()]
    return {
        "costs up to a third": min(lost) > 0 and max(lost) < MOST_LOST,
        "needed for large batches": len(none) < len(full),
        "twice as fast there": full[best(full)] > 2 * none[best(none)],
    }


def recompute() -> Study:
    """Figure 17."""
    return Study(
        "recompute",
        "145 B on 128 A100: recompute costs up to a third, but fits batches that are twice as fast",
        f"{PAPER}, figure 17",
        tuple(_recompute_points(None)),
        "sequences/s by batch",
        pays,
        speed,
        "the cost comes out (25 %), the memory does not: 1F1B keeps 16 micro-batches at most,"
        " 65 GiB by Korthikanti et al. 2023, so that every batch fits 80 GB without recomputation."
        " It would take 15 GiB more than these formulas count, which are within 3 % of their own"
        " measurements; all of it comes out on 40 GB",
    )


def recompute_small() -> Study:
    """Figure 17 with half the memory."""
    return Study(
        "recompute on 40 GB",
        "the same on A100 of 40 GB, where memory binds",
        f"{PAPER}, figure 17; other GPUs",
        tuple(_recompute_points("A100-40")),
        "sequences/s by batch",
        pays,
        speed,
        "half the memory of the published runs",
    )


def _by_size(
    base: str, degrees: dict[str, int], changes: dict[str, Any], suffix: str = ""
) -> list[Point]:
    """Micro-batches of 1 to 8 sequences, without recomputation and with all of it."""
    return [
        Point(
            f"{way}{suffix}",
            str(size),
            base,
            {**degrees, "micro_batch": size, "recompute": (way,)},
            changes,
        )
        for way in ("none", "full")
        for size in (1, 2, 4, 8)
    ]


def larger_micro_batch() -> Study:
    """Figure 16, beside plans without recomputation."""
    points = [
        point
        for batch in (128, 512)
        for point in _by_size(
            "megatron_91b", {"tp": 8, "pp": 8}, {BATCH: batch}, f", batch {batch}"
        )
    ]

    def judge(values: Values) -> dict[str, bool]:
        none, full = values["none, batch 512"], values["full, batch 512"]
        return {
            "2 is best, batch 128": best(values["full, batch 128"]) == "2",
            "2 is best, batch 512": best(full) == "2",
            "recompute allows larger ones": len(full) > len(none),
            "and pays by them": full[best(full)] > none[best(none)],
        }

    return Study(
        "micro-batch size",
        "91 B on 64 A100: micro-batches of 2 are best; recompute pays where it allows larger ones",
        f"{PAPER}, figure 16",
        tuple(points),
        "sequences/s by micro-batch size",
        judge,
        speed,
        "products are so large here that micro-batches of 1 cost 2 % only, less than the bubble of"
        " larger ones at batch 128, and recomputation costs 25 %. It would take products that gain"
        " a third from 1 to 4 sequences, which A100's 183 measured ones do not at this size",
    )


def recompute_for_larger_micro_batch() -> Study:
    """The second half of figure 16's finding, where launches take long."""
    gpu = gpu_catalogue()["A100-40"].model_dump()
    workload = gpt(4096, 32, 56, 2048, MEGATRON_VOCABULARY)
    changes = {
        "workload": workload.but(global_batch=512),
        "cluster.groups.0.gpu": gpu,
    }
    points = _by_size("megatron_5_9b", {"tp": 8}, changes)

    def judge(values: Values) -> dict[str, bool]:
        none, full = values["none"], values["full"]
        return {
            "recompute allows larger ones": len(full) > len(none),
            "costs at equal size": full["1"] < none["1"],
            "and pays by them": full[best(full)] > none[best(none)],
        }

    return Study(
        "recompute for larger micro-batches",
        "11.5 B on 64 A100-40, tensor groups of 8: recompute pays where it allows larger ones",
        f"{PAPER}, section 5.4, other sizes",
        tuple(points),
        "sequences/s by micro-batch size",
        judge,
        speed,
        "the size was chosen because only micro-batches of 1 fit without recomputation, and"
        " launches take longer than their kernels; one of 8 is then 27 % faster, recomputation"
        " included",
        fitted=True,
    )


def rows(reference: Path) -> Study:
    """Table 1, as far as the reference folder has it."""
    found = json_of(reference / "megatron" / "throughput_2021.json")["rows"]
    published = {f"{row[0]} B": float(row[-1]) for row in found}

    def figures(outcomes: Sequence[Outcome]) -> Values:
        return {"published": published} | throughput(outcomes)

    return Study(
        "table 1",
        "1.7 to 530 B on 32 to 2,520 A100: throughput within 8 % on average",
        f"{PAPER}, table 1",
        tuple(map(_row, found)),
        "TFLOP/s per GPU",
        lambda values: {"within 8 %": mean_error(values) <= 0.08},
        figures,
        "2.8 % on average, 5.0 % at most, 5 rows",
    )


def mean_error(values: Values) -> float:
    """Mean |ours / published - 1|."""
    published = values["published"]
    errors = [abs(values["ours"][label] / value - 1) for label, value in published.items()]
    return sum(errors) / len(errors)


def _row(row: Sequence[Any]) -> Point:
    """A row on as many nodes of the same cluster."""
    billions, heads, hidden, blocks, tp, pp, gpus, batch, _ = row
    micro_batch, chunks = MEGATRON_RUNS[billions]
    workload = gpt(hidden, heads, blocks, 2048, MEGATRON_VOCABULARY)
    return Point(
        "ours",
        f"{billions} B",
        "megatron_5_9b",
        {"tp": tp, "pp": pp, "micro_batch": micro_batch, "vpp": chunks}
        | ({"schedule": "interleaved"} if chunks > 1 else {}),
        {
            "workload": workload.but(global_batch=batch),
            "cluster.groups.0.nodes": gpus // 8,
        },
    )


def studies() -> list[Study]:
    """All that need no reference folder."""
    return [
        tensor_inside(),
        data_first(),
        against_zero_3(),
        interleaving(),
        scatter_gather(),
        recompute(),
        recompute_small(),
        larger_micro_batch(),
        recompute_for_larger_micro_batch(),
    ]
