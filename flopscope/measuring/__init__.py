"""Timing of single calls: measure(), compare_times() and sweep().

measuring.py    measure(): profiles one call, samples it, and combines its time with work and roofline
paired.py       compare_times(): times two calls alternately and decides whether one is faster
sweep.py        sweep(): measures one op at many sizes; operands.py creates its arguments
stage.py        setup before timing: the device, the timing source, the memory limit
look.py         one call under the profiler: its launches and the work of its ops
sampling.py     warm-up, sampling and the stopping rule, for any Clock
distribution.py median, confidence interval, outliers
cpu.py, cuda.py the clocks, which time calls on one kind of device
measurement.py  the result, as text, HTML and dict
"""
