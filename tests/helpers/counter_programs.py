"""What programs of the counters' tests begin with: kernels of a fake GPU that cause traffic."""

SETUP = """
import json
import math
_core.load_counters(LIBRARY)
cuda.fake.fake_set_active(1, 0)
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"

def kernel(name, us, read=0.0, written=0.0, tensor=0.0, gap=20, device=0, stream=7, at=None):
    start = cuda.launch(name, 1000 * us, at, device, stream)
    cuda.traffic(READ, start, 1000 * us, read, device)
    cuda.traffic(WRITTEN, start, 1000 * us, written, device)
    cuda.traffic(TENSOR, start, 1000 * us, 1000 * us * tensor, device)
    while cuda.now() < start + 1000 * (us + gap): pass
    return start

def counted(prof):
    names = ("count", "dram_bytes_read", "dram_bytes_written", "sm_active", "tensor_active", "dram_gbytes_per_s",
             "traffic_ratio", "l2_bytes", "nvlink_bytes")
    return {row.key: {n: None if math.isnan(getattr(row, n)) else getattr(row, n) for n in names}
            for row in prof.key_averages(peaks="none") if row.device_type == "cuda"}

def messages(caught):
    return [str(one.message) for one in caught]
"""
