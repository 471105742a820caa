"""A topology as queues in virtual time: what a policy would do to it, and what that would bring.

`model` has the values, `replay.run` is the door, `exact` and `slots` are the two ways of getting there.
"""
