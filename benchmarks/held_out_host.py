"""Held-out programs whose fault lies on the host: launches, waits, copies, data, the optimizer; and what all share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from fault_programs import DEVICE, Step
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def place(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    return model.to(device=DEVICE, dtype=dtype)


def random_input(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def predict(model: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    @torch.inference_mode()
    def step() -> Tensor:
        return model(x)

    return step


# Launches, one after the other ----------------------------------------------------------------------------------------


class RecurrentTagger(nn.Module):
    """An LSTM written as a loop over time, and a class for each frame."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input, self.recurrent = nn.Linear(features, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.classify = nn.Linear(hidden, classes)

    def forward(self, frames: Tensor) -> Tensor:
        h = c = frames.new_zeros(frames.shape[0], self.hidden)
        outputs = []
        for t in range(frames.shape[1]):
            i, f, g, o = (self.input(frames[:, t]) + self.recurrent(h)).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(self.classify(h))
        return torch.stack(outputs, dim=1)


def lstm_loop(mended: bool, batch: int = 16, frames: int = 48, features: int = 80, hidden: int = 256) -> Step:
    model = place(RecurrentTagger(features, hidden, classes=48)).eval().requires_grad_(False)
    x = random_input(batch, frames, features)
    if not mended:
        return lambda: model(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)

    def step() -> Tensor:
        graph.replay()
        return y

    return step


class SmallResidual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.conv(x)))


def sgd_nesterov(mended: bool, channels: int = 32, depth: int = 24, images: int = 16, size: int = 16) -> Step:
    stem, blocks = nn.Conv2d(3, channels, 3, padding=1), [SmallResidual(channels) for _ in range(depth)]
    model = place(nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)))
    options = {"fused": True} if mended else {"foreach": False}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4, **options)
    x, labels = random_input(images, 3, size, size), torch.randint(0, 10, (images,), device=DEVICE)

    def step() -> None:
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# Waits ----------------------------------------------------------------------------------------------------------------


def conjugate_gradient(mended: bool, n: int = 6144, iterations: int = 60) -> Step:
    factor, b = random_input(n, n), random_input(n)
    matrix = (factor @ factor.T / n).add_(torch.eye(n, device=DEVICE), alpha=0.01)
    del factor
    tolerance = 1e-12 * float(b @ b)

    def scalars_on_host() -> Tensor:
        x, r, p = torch.zeros_like(b), b.clone(), b.clone()
        rr = (r @ r).item()
        for _ in range(iterations):
            ap = matrix @ p
            alpha = rr / (p @ ap).item()
            x.add_(p, alpha=alpha)
            r.sub_(ap, alpha=alpha)
            old, rr = rr, (r @ r).item()
            if rr < tolerance:
                break
            p.mul_(rr / old).add_(r)
        return x

    def scalars_on_device() -> Tensor:
        x, r, p = torch.zeros_like(b), b.clone(), b.clone()
        rr = r @ r
        for i in range(iterations):
            ap = matrix @ p
            alpha = rr / (p @ ap)
            x.addcmul_(alpha, p)
            r.addcmul_(alpha, ap, value=-1)
            old, rr = rr, r @ r
            if i % 30 == 29 and rr < tolerance:
                break
            p = torch.addcmul(r, rr / old, p)
        return x

    return scalars_on_device if mended else scalars_on_host


class Upscaler(nn.Module):
    """Convolutions and a pixel shuffle that make images four times as wide and as high."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4))
        self.last = nn.Sequential(nn.Conv2d(channels, 48, 3, padding=1), nn.PixelShuffle(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for convolution in self.body:
            y = y + F.relu(convolution(y))
        return self.last(y).float()


def upscaler(mended: bool, batches: int = 4, images: int = 4, size: int = 192, channels: int = 64) -> Step:
    model = place(Upscaler(channels), torch.bfloat16).eval().to(memory_format=torch.channels_last)
    inputs = [
        random_input(images, 3, size, size, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        for _ in range(batches)
    ]

    @torch.inference_mode()
    def blocking() -> list[Tensor]:
        return [model(x).cpu() for x in inputs]

    if not mended:
        return blocking
    results = [torch.empty(images, 3, 4 * size, 4 * size, pin_memory=True) for _ in range(batches)]
    copies = torch.cuda.Stream()

    @torch.inference_mode()
    def beside() -> list[Tensor]:
        for x, result in zip(inputs, results, strict=True):
            y = model(x).contiguous()
            copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(copies):
                result.copy_(y, non_blocking=True)
            y.record_stream(copies)
        copies.synchronize()
        return results

    return beside


# Input ----------------------------------------------------------------------------------------------------------------


class Sentences(IterableDataset):
    """Endless random sentences with a label each."""

    def __init__(self, words: int) -> None:
        source = random.Random(1)
        self.words = words
        self.lexicon = [
            "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _ in range(4000)
        ]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        worker = get_worker_info()
        source = random.Random(worker.id if worker else 0)
        while True:
            yield " ".join(source.choices(self.lexicon, k=self.words)), source.randrange(16)


class Tokenizer:
    """Splits each word into the longest known pieces, and pads the sentences of a batch; used as collate_fn."""

    def __init__(self, lexicon: list[str], length: int) -> None:
        self.length = length
        letters = [*"abcdefghijklmnopqrstuvwxyz"]
        pieces = sorted({word[:n] for word in lexicon for n in (2, 3, 5)} | {word[-3:] for word in lexicon})
        self.pieces = {piece: i for i, piece in enumerate(["", *letters, *pieces])}

    def encode(self, text: str) -> list[int]:
        ids = []
        for word in text.lower().split():
            start = 0
            while start < len(word):
                end = min(len(word), start + 5)
                while word[start:end] not in self.pieces:
                    end -= 1
                ids.append(self.pieces[word[start:end]])
                start = end
        return ids[: self.length]

    def __call__(self, rows: list[tuple[str, int]]) -> tuple[Tensor, Tensor]:
        encoded = [self.encode(text) for text, _ in rows]
        ids = torch.tensor([row + [0] * (self.length - len(row)) for row in encoded])
        return ids, torch.tensor([label for _, label in rows])


class SentenceClassifier(nn.Module):
    """Convolutions of several widths over the embedded tokens, and the maximum of each over time."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, size, padding="same") for size in (3, 5, 7))
        self.classify = nn.Linear(3 * width, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids).transpose(1, 2)
        return self.classify(torch.cat([F.relu(c(x)).amax(-1) for c in self.convolutions], dim=-1))


def tokenizer(mended: bool, batch: int = 64, words: int = 180, length: int = 512, width: int = 256) -> Step:
    sentences = Sentences(words)
    tokenize = Tokenizer(sentences.lexicon, length)
    workers = {"num_workers": 8, "prefetch_factor": 4, "pin_memory": True, "timeout": 60} if mended else {}
    loader = iter(DataLoader(sentences, batch_size=batch, collate_fn=tokenize, **workers))
    model = place(SentenceClassifier(len(tokenize.pieces), width))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        ids, labels = (t.to(DEVICE, non_blocking=True) for t in next(loader))
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
