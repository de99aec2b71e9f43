"""Where torch's own files lie."""

from __future__ import annotations

import os
from typing import Final

import torch

TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
"""The folder of the package, with a separator at its end."""
