"""Rows about settings of the program that its data does not fit."""

from __future__ import annotations
