"""Models of torchvision, timm, transformers and torch_geometric as a user may run them; benchmarks/try.py runs them.

python benchmarks/try_elsewhere.py NAME     runs steps of one without end

Their weights are random, and nothing is downloaded. A row of MODELS is a function that returns a function which runs
one step. Sizes are small without a GPU, where the programs are tested.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

import flopscope as fs

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"

Step = Callable[[], object]
MODELS: dict[str, Callable[[], Step]] = {}


def model(build: Callable[[], Step]) -> Callable[[], Step]:
    """Add the decorated function to MODELS under its name."""
    MODELS[build.__name__] = build
    return build


def training(optimizer: Any, loss: Callable[[], Tensor]) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def images(count: int, size: int) -> tuple[Tensor, Tensor]:
    """Return a batch of images and their classes on the device; a small one on a CPU."""
    count = count if ON_GPU else 2
    return torch.randn(count, 3, size, size, device=DEVICE), torch.randint(0, 10, (count,), device=DEVICE)


def tokens(count: int, length: int, vocabulary: int) -> Tensor:
    shape = (count, length) if ON_GPU else (1, 16)
    return torch.randint(0, vocabulary, shape, device=DEVICE)


@model
def torchvision_resnet50() -> Step:
    """Training from a DataLoader of images that are decoded and augmented in the process itself."""
    from torchvision import datasets, models, transforms

    ways = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    ways.append(transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    data = datasets.FakeData(1 << 20, (3, 256, 256), 10, transforms.Compose(ways))
    batches = iter(DataLoader(data, batch_size=32 if ON_GPU else 2))
    network = models.resnet50(num_classes=10).to(DEVICE)

    def loss() -> Tensor:
        x, labels = next(batches)
        return F.cross_entropy(network(x.to(DEVICE)), labels.to(DEVICE))

    return training(torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), loss)


@model
def torchvision_mobilenet() -> Step:
    """Inference of large batches in float32."""
    from torchvision import models

    network = models.mobilenet_v3_large(num_classes=10).to(DEVICE).eval()
    x, _ = images(256, 224)

    @torch.no_grad()
    def step() -> Tensor:
        return network(x)

    return step


@model
def timm_convnext() -> Step:
    """Training in float32."""
    import timm

    network = timm.create_model("convnext_tiny", num_classes=10).to(DEVICE)
    x, labels = images(32, 224)
    adamw = torch.optim.AdamW(network.parameters(), lr=1e-4)
    return training(adamw, lambda: F.cross_entropy(network(x), labels))


@model
def timm_vit() -> Step:
    """Training in float32 with TF32."""
    import timm

    torch.set_float32_matmul_precision("high")
    network = timm.create_model("vit_small_patch16_224", num_classes=10).to(DEVICE)
    x, labels = images(64, 224)
    adamw = torch.optim.AdamW(network.parameters(), lr=1e-4)
    return training(adamw, lambda: F.cross_entropy(network(x), labels))


@model
def transformers_gpt2() -> Step:
    """Training of GPT-2 with its default configuration, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {} if ON_GPU else {"n_layer": 2}
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **small)
    network = GPT2LMHeadModel(config).to(DEVICE).train()
    ids = tokens(8, 512, config.vocab_size)
    adamw = torch.optim.AdamW(network.parameters(), lr=1e-4)
    return training(adamw, lambda: network(input_ids=ids, labels=ids).loss)


@model
def transformers_bert() -> Step:
    """Classification of short texts, one batch at a time, with gradients on."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig() if ON_GPU else BertConfig(num_hidden_layers=2)
    network = BertForSequenceClassification(config).to(DEVICE).eval()
    ids = tokens(8, 64, config.vocab_size)
    mask = torch.ones_like(ids)
    return lambda: network(input_ids=ids, attention_mask=mask).logits


@model
def transformers_llama() -> Step:
    """Training of a small Llama in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
    if not ON_GPU:
        size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    network = LlamaForCausalLM(LlamaConfig(vocab_size=32000, **size)).to(DEVICE, torch.bfloat16).train()
    ids = tokens(4, 1024, 32000)
    adamw = torch.optim.AdamW(network.parameters(), lr=1e-4)
    return training(adamw, lambda: network(input_ids=ids, labels=ids).loss)


@model
def geometric_gcn() -> Step:
    """Training of a graph network on the whole of a random graph."""
    from torch_geometric.nn.models import GCN

    nodes, edges = (100_000, 1_000_000) if ON_GPU else (1000, 5000)
    network = GCN(128, 256, num_layers=3, out_channels=10).to(DEVICE)
    x, labels = torch.randn(nodes, 128, device=DEVICE), torch.randint(0, 10, (nodes,), device=DEVICE)
    edge_index = torch.randint(0, nodes, (2, edges), device=DEVICE)
    adam = torch.optim.Adam(network.parameters(), lr=0.01)
    return training(adam, lambda: F.cross_entropy(network(x, edge_index), labels))


def main() -> None:
    torch.manual_seed(0)
    step = MODELS[sys.argv[1]]()
    while True:
        step()
        fs.step()


if __name__ == "__main__":
    main()
