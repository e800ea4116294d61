"""The command line: flopscope bench, devices, table, compare, measure."""
