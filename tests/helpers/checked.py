"""What tests of check() share."""

from typing import Any

BRIEF: dict[str, Any] = {"max_time": 0.3, "peaks": "none"}
JUDGED = ("faster", "same", "slower", "unclear")
"""Verdicts of kernels that are right."""


def x(*shape: int) -> Any:
    """Return the same normal values each time, of 48 rows and 72 columns unless another shape is given."""
    import torch

    return torch.randn(*(shape or (48, 72)), generator=torch.Generator().manual_seed(1))
