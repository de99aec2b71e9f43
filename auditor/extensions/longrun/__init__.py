"""Long runs (docs/watch.md): between looks a clock and counters, and full instruments for a few
steps when it is time, when somebody asks, or when the run departs from its course.
"""
