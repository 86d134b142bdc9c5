"""What stands in for GPUs where frameworks train on CPUs: `sitecustomize` of their processes."""

TORCHTITAN_ON_CPU = """
import types
import torch, torch._utils
import torch.distributed.fsdp._fully_shard._fsdp_collectives as fsdp

torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.current_device = lambda: 0
torch.cpu.get_device_name = lambda *_: "CPU"
torch.cpu.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 40)
torch.cpu.memory_stats = lambda *_: {}
torch.cpu.empty_cache = torch.cpu.reset_peak_memory_stats = lambda: None
factors = fsdp._get_gradient_divide_factors  # Gloo has no PREMUL_SUM
fsdp._get_gradient_divide_factors = lambda *options: factors(*options[:5], True)
"""
#: Without a kernel that is compiled for minutes, and from weights that depend on shapes alone.
DEEPSPEED_ON_CPU = """
import sys
import deepspeed, torch

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None

def drawn(weight, mean=0.0, std=1.0, generator=None):
    with torch.no_grad():
        places = torch.arange(weight.numel(), device=weight.device)
        return weight.copy_(std * torch.cos(places**2).view(weight.shape))

torch.Tensor.normal_ = drawn
"""

#: What asks for CUDA or is missing beside it: devices, streams, random states, two assertions, and
#: of Transformer Engine the norm that sequence parallelism needs. `typing.override` is Python
#: 3.12's; the compiled index builder is that of the extra's megatron-core.
MEGATRON_ON_CPU = """
import os
os.environ["TORCH_COMPILE_DISABLE"] = "1"
if "RANK" in os.environ:
    import contextlib, importlib.metadata, importlib.util, sys, types, typing
    import torch, torch._dynamo, typing_extensions

    class Cpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            given = dict(kwargs or {})
            if "cuda" in str(given.get("device")):
                given["device"] = "cpu"
            if function is torch.Tensor.type and len(args) == 1:  # clip_grads asserts CUDA's
                return function(*args).replace("torch.", "torch.cuda.")
            return function(*args, **given)

    class Stream:
        def __init__(self, *_, **__):
            pass
        def __getattr__(self, name):
            return lambda *_: self

    Cpu().__enter__()
    typing.override = typing_extensions.override
    asked = lambda: sys._getframe(2).f_code.co_name
    torch.cuda.is_available = lambda: asked() == "initialize_megatron"
    torch.cuda.device_count = lambda: int(os.environ["LOCAL_WORLD_SIZE"])
    torch.cuda.current_device = lambda: torch.device("cpu")
    a100 = types.SimpleNamespace(major=8, minor=0, name="A100", total_memory=80 << 30)
    torch.cuda.get_device_properties = lambda *_: a100
    torch.cuda.set_device = lambda *_: None
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.empty_cache = lambda: None
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_: self
    torch.cuda.Stream = torch.cuda.Event = Stream
    torch.cuda.current_stream = lambda *_: Stream()
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.manual_seed = lambda seed: torch.manual_seed(seed)
    torch.cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    torch.cuda.random.get_rng_state = torch.cuda.get_rng_state
    torch.cuda._lazy_call = lambda *_, **__: None  # sets the state

    name = "megatron.core.datasets.helpers_cpp"
    files = importlib.metadata.files("megatron-core")
    (built,) = [file.locate() for file in files if file.match("helpers_cpp*.so")]
    spec = importlib.util.spec_from_file_location(name, built)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])

    sys.path.insert(0, os.environ["HETPLAN_MEGATRON_LM"])
    import megatron.core.datasets.utils as datasets
    import megatron.core.models.gpt.gpt_model as models
    import megatron.core.transformer.moe.token_dispatcher as dispatchers
    import megatron.core.transformer.torch_norm as norms

    datasets.compile_helpers = lambda: None

    def as_lists(tensor, as_numpy=False, **_):
        return tensor.tolist() if as_numpy and torch.is_tensor(tensor) else tensor

    def norm(cls, config, hidden_size, eps):
        module = torch.nn.RMSNorm(hidden_size, eps)
        module.weight.sequence_parallel = config.sequence_parallel
        return module

    build = models.GPTModel.__init__

    def told(self, *args, **options):
        build(self, *args, **options)
        blocks = [layer.layer_number - 1 for layer in self.decoder.layers]
        chunk = self.vp_stage or 0, self.pre_process, blocks, self.post_process
        os.write(1, f"rank {os.environ['RANK']} builds {chunk}\\n".encode())

    dispatchers.maybe_move_tensor_to_cpu = as_lists
    norms.WrappedTorchNorm.__new__ = norm
    models.GPTModel.__init__ = told
"""
ON_CPU = {
    "torchtitan": TORCHTITAN_ON_CPU,
    "deepspeed": DEEPSPEED_ON_CPU,
    "accelerate": DEEPSPEED_ON_CPU,
    "megatron": MEGATRON_ON_CPU,
}
