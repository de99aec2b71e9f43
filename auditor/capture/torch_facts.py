"""What ``audit doctor`` asks of torch, in a process of its own: importing it may end that."""

import json
import sys
from typing import Any

import torch

from auditor.errors import words_of


def facts() -> dict[str, Any]:
    """Version, build and devices of the torch that a target would import."""
    told: dict[str, Any] = {
        "version": str(torch.__version__),
        "file": str(torch.__file__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "threads": torch.get_num_threads(),
        "distributed": torch.distributed.is_available(),
        "devices": [],
        "why": "",
    }
    if not (torch.version.cuda or torch.version.hip):
        return told
    if torch.cuda.is_available():
        devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        told["devices"] = [
            {"name": str(each.name), "memory": int(each.total_memory)} for each in devices
        ]
        return told
    try:
        torch.cuda.init()
    except Exception as error:  # what torch says of a driver that is too old, or not there
        told["why"] = words_of(error, 300).partition("\n")[0]
    return told


def main() -> None:
    """Print the facts as the last line of stdout, behind the mark that is the first argument."""
    sys.stdout.write(f"\n{sys.argv[1]}{json.dumps(facts())}\n")


if __name__ == "__main__":
    main()
