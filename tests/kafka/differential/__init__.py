"""The same requests to two brokers, step by step: do they answer alike, field by field?

A *sequence* is a list of steps, and a step is a request as plain data: it can be printed, kept and replayed.
Names that brokers choose (member ids, topic ids, producer ids, sessions) are written as ``$kind:alias``, and
what a sequence creates begins with ``~``, so that no two runs meet.

``values`` turns plain data into requests and replies into plain data, ``sides`` is one broker with its
connections and the names it chose, ``lockstep`` runs a sequence on two sides, ``generator`` makes sequences
from seeds, ``shrink`` makes a failing one small, and ``known`` lists the differences that are meant.
"""
