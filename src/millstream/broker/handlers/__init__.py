"""The request handlers, one module per family of APIs; ``dispatch`` finds them.

A handler is a function ``(broker, request, context)``. It returns the response, or None if it will call
``context.reply`` once, later. It answers expected errors with Kafka's
error codes; an exception that leaves a handler is a bug, and closes the connection.
"""
