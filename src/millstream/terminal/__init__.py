"""What the command line, the console and the demo share: output, input, clients, and how a command ends."""
