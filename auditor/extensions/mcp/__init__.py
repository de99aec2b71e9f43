"""The commands of ``audit`` as tools of a coding agent, by the Model Context Protocol."""
