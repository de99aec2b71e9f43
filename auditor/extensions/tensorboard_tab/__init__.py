"""The Audit tab of TensorBoard, and the same pages without TensorBoard: runs, their reports, their
traces.
"""

from __future__ import annotations
