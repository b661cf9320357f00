"""Divide the matrices of a PyTorch model among ranks on MPI, with a parallel plan of DTensor.

Run it with ``mpiexec -n 4 python examples/torch_tensor_parallel.py``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import pycoll
import pycoll.torch

WIDTH, HIDDEN, BATCH = 16, 96, 8


class Block(nn.Module):
    """The feed-forward block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input and what the block adds to it."""
        return x + self.down(nn.functional.gelu(self.up(x)))


def gradients(model: nn.Module, inputs: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the output and the gradient of each parameter, gathered from all ranks."""
    output = model(inputs)
    output.square().mean().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return output, {name: grad.full_tensor() if isinstance(grad, DTensor) else grad for name, grad in found.items()}


pycoll.abort_on_exception()
dist.init_process_group("pycoll")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)  # the same parameters and inputs on all ranks
whole, divided = Block(), Block()
divided.load_state_dict(whole.state_dict())
inputs = torch.randn(BATCH, WIDTH)

# the columns of the first matrix and the rows of the second are divided; one all-reduce adds the outputs
mesh = init_device_mesh("cpu", (size,))
parallelize_module(divided, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
kept = divided.up.weight.to_local().numel()

(output, found), (wanted, expected) = gradients(divided, inputs), gradients(whole, inputs)
difference = max((found[name] - expected[name]).abs().max().item() for name in expected)
assert torch.allclose(output, wanted, atol=1e-5) and difference < 1e-5
if rank == 0:
    print(f"rank 0 keeps {kept} of {WIDTH * HIDDEN} elements; largest difference of a gradient {difference:.1e}")
dist.destroy_process_group()
