"""What the DDP tutorial and minGPT-ddp of PyTorch do, with a backend: train, save a snapshot, and resume.

After github.com/pytorch/examples, distributed/ddp-tutorial-series and distributed/minGPT-ddp, on the CPU.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

import pycoll.torch  # noqa: F401

BLOCK, WIDTH, LETTERS = 16, 32, 27


class Model(nn.Module):
    """A transformer of one layer that predicts the next letter."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(LETTERS, WIDTH)
        self.position = nn.Parameter(torch.zeros(1, BLOCK, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        mask = nn.Transformer.generate_square_subsequent_mask(BLOCK)
        logits = self.head(self.layer(self.tokens(letters) + self.position, mask, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


class Trainer:
    """The loop of the examples: epochs of training and evaluation, and a snapshot after each."""

    def __init__(self, snapshot: Path, train: torch.utils.data.Dataset, test: torch.utils.data.Dataset) -> None:
        self.rank, self.snapshot, self.epochs_run = int(os.environ["RANK"]), snapshot, 0
        self.loaders = {name: self._loader(data) for name, data in (("Train", train), ("Eval", test))}
        torch.manual_seed(self.rank)  # DDP sends the parameters of rank 0
        model = Model()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.scaler = torch.amp.GradScaler("cpu")
        if snapshot.exists():
            saved = torch.load(snapshot, map_location="cpu")
            model.load_state_dict(saved["model_state"])
            self.optimizer.load_state_dict(saved["optimizer_state"])
            self.epochs_run = saved["finished_epoch"]
        self.model = DistributedDataParallel(model)

    @staticmethod
    def _loader(data: torch.utils.data.Dataset) -> DataLoader:
        return DataLoader(data, batch_size=16, shuffle=False, num_workers=1, sampler=DistributedSampler(data))

    def _batch(self, letters: torch.Tensor, following: torch.Tensor, train: bool) -> float:
        with torch.set_grad_enabled(train), torch.amp.autocast("cpu", dtype=torch.bfloat16):
            loss = self.model(letters, following)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()

    def train(self, epochs: int) -> None:
        """Train from the last snapshot on, and print the sum of the losses of all ranks."""
        for epoch in range(self.epochs_run + 1, epochs + 1):
            for name, loader in self.loaders.items():
                loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
                losses = torch.tensor(
                    [self._batch(letters, following, name == "Train") for letters, following in loader]
                )
                dist.all_reduce(losses)
                if self.rank == 0:
                    print(f"epoch {epoch} {name} {losses.tolist()}")
            if self.rank == 0:
                state = self.model.module.state_dict(), self.optimizer.state_dict(), epoch
                torch.save(dict(zip(("model_state", "optimizer_state", "finished_epoch"), state)), self.snapshot)
            dist.barrier()


def main(backend: str, snapshot: Path) -> None:
    """Train two epochs, then one more from the snapshot."""
    dist.init_process_group(backend)
    random = torch.Generator().manual_seed(3)
    text = torch.randint(LETTERS, (8,), generator=random).repeat(40)  # easy to predict
    letters = text.unfold(0, BLOCK, 1)[:-1], text.unfold(0, BLOCK, 1)[1:]
    data = random_split(TensorDataset(*letters), [0.8, 0.2], generator=random)
    for epochs in (2, 3):
        Trainer(snapshot, *data).train(epochs)
    dist.destroy_process_group()


if __name__ == "__main__":  # workers that are not forked import this file
    main(sys.argv[1], Path(sys.argv[2]) / "snapshot.pt")
