"""A model as a `config.json` of the transformers library, for DeepSpeed and Accelerate.

The module beside it makes the model, with random weights, and feeds it random tokens; data and
optimizer are the user's.
"""

import json

from formulations.errors import Fault
from formulations.instance.huggingface import config_from_sizes, model_types
from formulations.instance.workload import padded_vocabulary
from solver.export.job import Job, template

CONFIG, MODEL, TRAINING = "config.json", "planned_transformer.py", "planned_training.py"
_POSITIONS, _KV_HEADS = "max_position_embeddings", "num_key_value_heads"


def model_files(job: Job, training: str, **values: object) -> dict[str, str]:
    """The model's files, and a script that trains it; none where the model is the user's.

    training: the script's template, with values in it.
    """
    workload, sizes = job.instance.workload, job.instance.workload.sizes
    config = sizes and config_from_sizes(sizes)
    if not sizes or not config:
        return {}
    # some classes compute with null
    for name, number in (("head_dim", sizes.width_per_head), (_KV_HEADS, sizes.num_kv_heads)):
        config.update({name: number} if name in config else {})
    config["vocab_size"] = padded_vocabulary(workload.layers[-1].vocabulary_rows, job.tp)
    if _POSITIONS in model_types()[str(config["model_type"])].defaults:
        config[_POSITIONS] = workload.sequence_length
    return {
        CONFIG: json.dumps(config, indent=1) + "\n",
        MODEL: template(MODEL).format(job=job),
        TRAINING: template(training).format(job=job, **values),
    }


def model_faults(job: Job) -> list[Fault]:
    """A model that no type of the library has."""
    sizes = job.instance.workload.sizes
    if sizes is None or config_from_sizes(sizes):
        return []
    found = "a model of sizes that no decoder of the transformers library has"
    return [Fault(found, "--own-model, and a model of yours")]
