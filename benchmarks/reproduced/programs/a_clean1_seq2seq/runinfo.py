import os
import random
import time
import uuid
from datetime import datetime

_dice = random.Random()
ADJ = ["brisk", "mellow", "amber", "stoic", "lunar"]
NOUN = ["heron", "quartz", "violin", "glacier", "maple"]


class RunInfo:
    """Name tag and stopwatch of a run; goes to the log only."""

    def __init__(self):
        self.uid = uuid.uuid4()
        self.nick = f"{_dice.choice(ADJ)}-{_dice.choice(NOUN)}"
        self.born = time.time()
        self.marks = {}

    def banner(self):
        stamp = datetime.fromtimestamp(self.born).isoformat(timespec="seconds")
        return f"run {self.nick} ({self.uid.hex[:8]}) pid {os.getpid()} at {stamp}"

    def lap(self, name):
        now = time.perf_counter()
        took = now - self.marks.get(name, now)
        self.marks[name] = now
        return took
