"""What the command line, the console and the demo share: output, errors, the check for a broker."""
