"""Work of torchvision's ops, against first principles and the recorded ops."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.hand_traces import FLOAT
from helpers.library_calls import numbers, work


def vision(name: str, *arguments: Any) -> dict[str, Any]:
    tensors = [(FLOAT, a) if isinstance(a, tuple) and isinstance(a[0], int) else a for a in arguments]
    return work(f"torchvision::{name}", *tensors)


@pytest.mark.parametrize("ratio", [2, 0, -1])
def test_samples_of_regions_and_their_gradients(ratio: int) -> None:
    image, rois, pooled = (2, 8, 160, 160), (300, 5), 7 * 7
    sizes, shape = ["0.25", "7", "7"], [str(size) for size in image]
    results = 300 * 8 * pooled
    whole, given = 4 * math.prod(image), 4 * 300 * 5
    samples = results * ratio**2 if ratio > 0 else math.nan
    forward = vision("roi_align", image, rois, *sizes, str(ratio), "True")
    least = min(whole, 4 * 4 * samples) if ratio > 0 else whole
    assert numbers(forward) == pytest.approx((8 * samples, least + given, 4 * results), nan_ok=True)
    grad = vision("_roi_align_backward", (300, 8, 7, 7), rois, *sizes, *shape, str(ratio), "True")
    read = 4 * results + given
    assert numbers(grad) == pytest.approx((8 * samples, read + least, least), nan_ok=True) and grad["at_most"]
    places = vision("ps_roi_align", (2, 98, 160, 160), rois, *sizes, str(ratio))
    results = 300 * (98 // pooled) * pooled
    samples = results * ratio**2 if ratio > 0 else math.nan
    assert places["flops"] == pytest.approx(8 * samples, nan_ok=True) and places["bytes_written"] == (4 + 4) * results


def test_gradients_of_pools_add_to_the_image() -> None:
    image, sizes, grad = ["2", "8", "160", "160"], ["0.25", "7", "7"], (300, 8, 7, 7)
    given = 4 * 300 * 5
    found = vision("_roi_pool_backward", grad, (300, 5), ("int", grad), *sizes, *image)
    results = 300 * 8 * 49
    assert numbers(found) == (results, 4 * 3 * results + given, 4 * results)
    whole = 4 * 2 * 8 * 160 * 160
    mean = vision("_ps_roi_pool_backward", grad, (300, 5), ("int", grad), *sizes, *image)
    assert math.isnan(mean["flops"]) and mean["bytes_written"] == whole
    other = vision("_roi_pool_backward", grad, (300, 5), ("int", (1, 8, 7, 7)), *sizes, *image)
    assert math.isnan(other["bytes_moved"])


def test_boxes_are_compared_in_pairs() -> None:
    found = vision("nms", (640, 4), (640,), "0.5")
    mask = 640 * 640 / 8 + 640 * 63 / 8  # a bit for each pair, of whole words
    assert numbers(found) == (12 * 640 * 639 / 2, 4 * 4 * 640 + mask, mask)


@pytest.mark.parametrize("masked", [True, False])
def test_a_deformed_convolution_counts_its_columns_apart_from_its_products(masked: bool) -> None:
    image, weight, offset, mask = (2, 8, 16, 16), (6, 4, 3, 3), (2, 36, 14, 14), (2, 18, 14, 14) if masked else (2, 1)
    rest = ["1", "1", "0", "0", "1", "1", "2", "2", str(masked)]
    columns = 2 * 14 * 14 * 8 * 9  # of the 8 channels, whatever the groups
    used = math.prod(mask) if masked else 0
    found = vision("deform_conv2d", image, weight, offset, mask, (6,), *rest)
    assert numbers(found) == (9 * columns, 4 * (math.prod(image) + math.prod(offset) + used), 4 * columns)
    back = vision("_deform_conv2d_backward", (2, 6, 14, 14), image, weight, offset, mask, (6,), *rest)
    read = 2 * math.prod(image) + 3 * math.prod(offset) + 3 * used + 2 * columns
    written = columns + math.prod(image) + math.prod(offset) + used
    assert back["bytes_moved"] == 4 * (read + written) and math.isnan(back["flops"])


def test_recorded_ops_of_torchvision_have_work() -> None:
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    x, rois = torch.randn(2, 8, 16, 16, requires_grad=True), torch.tensor([[0, 0.0, 0, 9, 9], [1, 2, 2, 12, 12]])
    weight, offset = torch.randn(6, 8, 3, 3, requires_grad=True), torch.randn(2, 18, 14, 14)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        ops.roi_align(x, rois, 2, 1.0, 2).sum().backward()
        ops.ps_roi_align(x, rois, 2, 1.0, 2).sum().backward()
        ops.roi_pool(x, rois, 2).sum().backward()
        ops.nms(torch.rand(30, 4), torch.rand(30), 0.5)
        ops.deform_conv2d(x, offset, weight).sum().backward()
    from flopscope.torch import from_profile

    rows = {row.key: row for row in from_profile(prof).key_averages()}
    samples = 2 * 4 * 4
    for name, channels in (("roi_align", 8), ("ps_roi_align", 2)):
        assert rows[f"torchvision::{name}"].flops == 8 * samples * channels, name
        assert rows[f"torchvision::_{name}_backward"].flops == 8 * samples * channels, name
    assert rows["torchvision::_roi_pool_backward"].flops == 2 * 8 * 4
    assert rows["torchvision::nms"].flops == 12 * 30 * 29 / 2
    columns = 2 * 14 * 14 * 8 * 9
    assert rows["torchvision::deform_conv2d"].flops == 9 * columns
    products = rows.get("aten::addmm_") or rows["aten::mm"]  # mm since torchvision 0.29
    assert products.flops == 3 * 2 * columns * 6  # forward, and both gradients
