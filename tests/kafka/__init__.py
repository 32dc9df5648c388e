"""One behaviour on two brokers, and other clients on ours: ``docs/compatibility.md`` says what came of it."""
