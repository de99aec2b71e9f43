"""The commands of ``audit`` as tools of a coding agent, over the Model Context Protocol
(docs/agents.md).
"""
