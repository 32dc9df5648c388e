"""Sessions, Java, the parent process of Python workers, and shipping the package to workers."""
