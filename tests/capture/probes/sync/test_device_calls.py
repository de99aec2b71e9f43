from auditor.capture.probes.sync.device_calls import DeviceCallsProbe
from tests.capture.drive import Drive, line_of, load


def test_a_deprecated_name_is_the_same_and_other_libraries_are_not_the_user(tmp_path):
    user = load(
        tmp_path,
        """
        import contextlib, warnings, torch
        def torchs():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.suppress(Exception):
                    torch.cuda.reset_max_memory_allocated()    # torchs
        def library():
            with contextlib.ExitStack() as stack:
                stack.callback(torch.cuda.empty_cache)
        """,
    )
    with Drive(tmp_path, DeviceCallsProbe) as drive:
        drive.run("quiet", user.torchs, steps=1)
        drive.run("loud", user.library, steps=1)  # contextlib calls it, not the user's line
        rows = drive.rows("calls")
    assert [(row["name"], row["at_line"]) for row in rows] == [
        ("reset_peak_memory_stats", line_of(user, "torchs"))
    ]
