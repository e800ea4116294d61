"""Times of single calls: measure() and compare_times().

measure.py      what the user calls: looks at one call, samples it, joins work and roofline
compare.py      two calls in turns, and whether one is faster
sampling.py     warm-up, samples, the criterion to stop by; knows a Clock and no device
statistics.py   median, confidence interval, outliers
cpu.py, cuda.py the clocks: how one device is timed
look.py         one call under the profiler: what it launches, and the work of its ops
measurement.py  the result, as text, HTML and dict
"""
