"""The requests and responses of the protocol, one file per family of APIs."""
