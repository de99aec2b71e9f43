"""The Audit tab of TensorBoard, and its pages without it: runs, their reports and traces."""
