"""What was given to torch.compile, put together from the rows of all passes."""


def region(number=0, name="warmup", step=0, at=0, **more):
    return {
        "pass": name,
        "step": step,
        "number": number,
        "at": at,
        "what": "Net",
        "us": 100.0,
    } | more


def ran(number=0, name="quiet", **more):
    return {"pass": name, "step": 0, "number": number, **more}


def steps(**passes):
    return [
        {"pass": name, "step": step, "global_step": step, "us": 1.0, "rss": 0}
        for name, n in passes.items()
        for step in range(n)
    ]
