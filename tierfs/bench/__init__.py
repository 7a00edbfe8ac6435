"""What `tierfs bench` measures: a mount against what the cold tier and FUSE can do at most, in one run.

trial.py makes a store for it and removes everything again; mounted.py reads what is mounted already.
children.py runs the mounts, raw.py and reading.py read, figures.py holds the results. Subjects are
interleaved and medians compared, because absolute figures belong to the machine and the day.
"""
