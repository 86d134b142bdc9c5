"""Pipeline schedules: fixed operation orders, the graphs they induce, and paths of these graphs.

A schedule is two functions of `registry`, and an entry with what it states of itself.
"""
