"""The segment files of a log, their indexes, and the records inside them."""
