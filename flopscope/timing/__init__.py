"""Times of single calls: measure() and compare_times().

measure.py      what the user calls: looks at one call, samples it, joins work and roofline
compare.py      two calls in turns, and whether one is faster
stage.py        what is settled before: the device, who tells its times, what may go wrong
look.py         one call under the profiler: what it launches, and the work of its ops
sampling.py     warm-up, samples, the criterion to stop by; knows a Clock and no device
distribution.py median, confidence interval, outliers
cpu.py, cuda.py the clocks: how one device is timed; nvml.py, at which frequency it ran
measurement.py  the result, as text, HTML and dict
command.py      flopscope measure
"""
