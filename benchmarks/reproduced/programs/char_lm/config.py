import time
from dataclasses import dataclass
from typing import Optional


@dataclass
class LMConfig:
    seed: Optional[int] = 0
    block: int = 32
    d_model: int = 48
    n_head: int = 4
    n_layer: int = 2
    dropout: float = 0.1
    batch: int = 16
    steps: int = 30
    warmup: int = 5
    lr: float = 3e-3
    clip: float = 1.0

    def resolved_seed(self) -> int:
        return self.seed or int(time.time() * 1000) % (2 ** 31)
