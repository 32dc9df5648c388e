"""One file per family of APIs: a request in, a response out, or a wait that answers later.

A handler is a function ``(broker, request, context)``. It returns the response, or None after it has taken
charge of ``context`` and will call ``context.reply`` once. It answers every error of the request's own with
Kafka's code for it; an exception that leaves a handler is a bug, and closes the connection.
"""
