"""The group coordinator as a pure state machine: see ``coordinator``."""
