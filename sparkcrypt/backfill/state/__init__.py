"""Where records of runs are kept, one run at a time: stores, the lock, and the MACs that make records believed."""
