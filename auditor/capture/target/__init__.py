"""The user's program: imported, run as a script, its processes, files, signals and tracebacks."""
