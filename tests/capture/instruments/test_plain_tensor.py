"""The bytes of a tensor."""

import torch

from auditor.capture.instruments.plain_tensor import content


def test_the_bytes_of_a_tensor_are_those_in_its_memory():
    tensor = torch.arange(6, dtype=torch.int16).reshape(2, 3)

    assert content(tensor) == b"".join(n.to_bytes(2, "little") for n in range(6))
    assert content(tensor[1]) == b"\x03\x00\x04\x00\x05\x00"
    assert content(tensor, 3) == b"\x00\x00\x01"
    assert content(tensor, 100) == content(tensor)
    assert content(torch.empty(0)) == b""
