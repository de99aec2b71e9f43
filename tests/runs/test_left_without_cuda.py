"""Programs that leave before their first step: which of them asked for CUDA?"""

import textwrap

import pytest

from auditor.runs.left_without_cuda import left_without_cuda

LEFT = {
    "at once": """
        if not cuda.is_available():
            print("needs a GPU")
            raise SystemExit(1)
        """,
    "in the last branch": """
        def main(launched):
            if launched:
                pass
            elif cuda.is_available():
                pass
            else:
                raise SystemExit
        main(False)
        """,
    "by a function of its own": """
        def fail(said):
            raise SystemExit(said)

        if cuda.device_count() < 1:
            fail("no device")
        """,
}
STAYS_ITS_OWN = {
    "asked before": """
        device = "cuda" if cuda.is_available() else "cpu"
        raise SystemExit(1)
        """,
    "another question": """
        if not cuda.is_available():
            print("slow")
        if not arguments:
            raise SystemExit(1)
        """,
    "arguments": """
        import argparse
        argparse.ArgumentParser().parse_args(["--nothing"])
        """,
    "help": """
        import argparse
        argparse.ArgumentParser().parse_args(["--help"])
        """,
    "far below a question": """
        def read(path):
            raise SystemExit("no such file")

        def load():
            read("x")

        def main():
            load()

        if not cuda.is_available():
            main()
        """,
    "an error": """
        if not cuda.is_available():
            raise ValueError("no GPU")
        """,
}


class Cuda:
    def is_available(self):
        return False

    def device_count(self):
        return 0


def left(folder, source):
    path = folder / "train.py"
    path.write_text(textwrap.dedent(source))
    with pytest.raises((SystemExit, ValueError)) as raised:
        exec(compile(path.read_text(), str(path), "exec"), {"cuda": Cuda(), "arguments": ()})
    return raised.value


@pytest.mark.parametrize("how", LEFT)
def test_a_program_that_asked_for_cuda_and_left(how, tmp_path):
    said = left_without_cuda(left(tmp_path, LEFT[how]))
    assert said is not None and said.startswith("the program left at train.py:")


@pytest.mark.parametrize("how", STAYS_ITS_OWN)
def test_one_that_left_for_another_reason(how, tmp_path):
    assert left_without_cuda(left(tmp_path, STAYS_ITS_OWN[how])) is None
