"""Every exception of millstream, all under ``MillstreamError``.

Two families:

- ``BrokerError``: what a broker answered. One subclass for each error code of Kafka 4.1; its ``action`` says
  what the caller should do next. ``for_code`` finds the class of a code.
- what this process found out by itself: a wrong call, a wrong setting, a timeout, corrupt bytes, a failed
  commit.

A class's docstring is also its message: what happened and, where there is something, what to do.
Classes end in ``Error``, except ``CorruptMessage``, ``CorruptBatch`` and ``UnsupportedMagic``, which report
bytes. All of them can be pickled, as Spark's workers need.
"""

from millstream.errors.broker import *
from millstream.errors.codes import Action as Action
from millstream.errors.codes import ErrorCode as ErrorCode
from millstream.errors.own import *
from millstream.errors.rare import *
