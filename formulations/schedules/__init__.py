"""Pipeline schedules: fixed operation orders, the graphs they induce, and paths of these graphs.

A schedule is two functions of `operations`, and an entry of `registry` with what it states of
itself.
"""
