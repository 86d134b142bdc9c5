"""Flags of Megatron-LM: those that decide a plan, those that no plan describes, all others.

Source: `megatron/training/arguments.py` at 000c4ac2, and core 0.20.
"""

import re
from collections.abc import Mapping

#: Of the flags that are read, how many values they take; None: any number.
READ: Mapping[str, int | None] = {
    "--tensor-model-parallel-size": 1,
    "--pipeline-model-parallel-size": 1,
    "--context-parallel-size": 1,
    "--expert-model-parallel-size": 1,
    "--expert-tensor-parallel-size": 1,
    "--moe-token-dispatcher-type": 1,
    "--cp-comm-type": None,
    "--mtp-num-layers": 1,
    "--use-megatron-fsdp": 0,
    "--data-parallel-sharding-strategy": 1,
    "--pipeline-model-parallel-layout": 1,
    "--num-layers-per-virtual-pipeline-stage": 1,
    "--num-virtual-stages-per-pipeline-rank": 1,
    "--decoder-first-pipeline-num-layers": 1,
    "--decoder-last-pipeline-num-layers": 1,
    "--account-for-embedding-in-pipeline-split": 0,
    "--account-for-loss-in-pipeline-split": 0,
    "--use-tp-pp-dp-mapping": 0,
    "--micro-batch-size": 1,
    "--global-batch-size": 1,
    "--num-layers": 1,
    "--seq-length": 1,
    "--hidden-size": 1,
    "--num-query-groups": 1,
    "--recompute-granularity": 1,
    "--recompute-method": 1,
    "--recompute-num-layers": 1,
    "--recompute-activations": 0,
    "--recompute-modules": None,
    "--use-distributed-optimizer": 0,
    "--sequence-parallel": 0,
    "--tp-comm-overlap": 0,
    "--overlap-grad-reduce": 0,
    "--bf16": 0,
    "--fp16": 0,
    "--fp8-format": 1,
    "--accumulate-allreduce-grads-in-fp32": 0,
    "--grad-reduce-in-bf16": 0,
    "--attention-backend": 1,
    "--optimizer": 1,
    "--exp-avg-dtype": 1,
    "--exp-avg-sq-dtype": 1,
}

#: Flags of runs that no plan describes, and what to write instead.
NOT_PLANNED: Mapping[str, str] = {
    "use-torch-fsdp2|torch-fsdp2-.*|use-custom-fsdp|fsdp-.*": "--use-megatron-fsdp, or no FSDP",
    "enable-full-sharding-in-hsdp|outer-dp-sharding-strategy": "one kind of replicas",
    "num-distributed-optimizer-instances": "states split over all replicas, or none",
    "cpu-offloading.*|optimizer-cpu-offload|optimizer-offload-.*|offload-.*": "all on the GPU",
    "use-torch-optimizer-for-cpu-offload|overlap-cpu-optimizer-.*": "all on the GPU",
    "fine-grained-activation-offloading": "all on the GPU",
    "(encoder|decoder)-(tensor|pipeline)-model-parallel-size": "one pipeline for all layers",
    "(default-)?hierarchical-context-parallel.*": "--context-parallel-size 1",
    "hybrid-.*": "a chain of embedding, blocks and head",
    "model-parallel-size": "--tensor-model-parallel-size",
    "checkpoint-activations": "--recompute-activations, or a --recompute-granularity",
    "distribute-saved-activations": "activations kept whole",
    "defer-embedding-wgrad-compute|wgrad-deferral-limit|delay-wgrad-compute": "one backward pass",
    "fp32-residual-connection": "residuals in the precision of the products",
}

#: First words of flags that decide nothing of a plan: data, tokenizer, learning, files, logs,
#: kernels, and the model's own, which the instance has.
_OTHERS = """
adam add adlr align apply async attention auto-detect bert bias cache calculate check checkpoint
ckpt clip clone-scatter-output-in-embedding cosine create cross-entropy cuda-graph
data dataloader dataset ddp decay decoupled deterministic disable dist distrib-optim distributed
dump-param-to-param-group-map empty-unused-memory-level enable end-weight-decay eod error eval
exit ffn fim first-last fp16-lm-cross-entropy fp8 full-validation gradient-accumulation-fusion
gradient-reduce-div-fusion group head hidden-dropout high-priority hysteresis inference init
initial-loss-scale initialization iter iterations-to-skip kv layernorm lazy legacy load
local-rank log loss lr make manual-gc mask masked-softmax max memory-snapshot-path merge
microbatch-group-size min mmap mock moe mscale multi multiple-validation-sets muon nccl norm
normalization num one-logger openai overlap-moe overlap-p2p overlap-param-gather override
padded-vocab-size per persist pin position pretrained-checkpoint profile q qk rampup record
reduce replication rerun reset result-rejected reuse-grad-buf rope rotary router run sample save
scatter-gather-tensors-in-pipeline seed sgd sharp-enabled-group short skip spec split squared
start straggler swiglu te tensorboard test tiktoken timing tokenizer tp-comm train transformer
trust-remote untie use-checkpoint use-cpu-init use-dist-ckpt use-flash-attn use-fused use-legacy
use-mcore use-mp-args use-nccl-ub use-one-sent use-persistent use-precision-aware
use-pytorch-profiler use-ring use-rope use-rotary use-sharp use-te-rng use-tokenizer v-head
valid vocab wandb warmup weight weighted-loss yaml
"""
OTHERS = re.compile(rf"--(no-)?({'|'.join(_OTHERS.split())})(-[a-z0-9-]+)?")
