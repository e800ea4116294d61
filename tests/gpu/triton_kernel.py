"""A Triton kernel, in a file because Triton reads the source of its kernels."""

import triton
import triton.language as tl


@triton.jit
def double_kernel(source, target, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + at, 2 * tl.load(source + at, mask=at < count), mask=at < count)


def double(tensor):
    result = tensor.new_empty(tensor.shape)
    double_kernel[(triton.cdiv(tensor.numel(), 1024),)](tensor, result, tensor.numel(), 1024)
    return result
