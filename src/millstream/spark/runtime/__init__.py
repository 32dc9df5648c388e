"""Java, the Python workers' parent process, and shipping the package to workers."""
