"""The benchmark suite: cases, peers, the memory roofline, and the table that compares them.

Nothing of the library imports this package; it needs the extra ``bench`` for its output alone.
"""
