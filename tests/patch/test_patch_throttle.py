"""Logs put under a step counter: what is made, and every near miss that must be left alone."""

import pytest

from auditor.patch import Refused, apply_edits, diff_bytes
from tests.patch.marked import sides

ENUMERATED = "for i, batch in enumerate(loader):\n    optimizer.step()\n    {}\n"
WANTED = (
    "for i, batch in enumerate(loader):\n    optimizer.step()\n    if i % 50 == 0:\n        {}\n"
)

LOGS = [
    "print(loss.item())",
    (
        'print(f"step {i}: {loss.item():.4f}, lr {sched.get_last_lr()[0]}", flush=True, '
        "file=sys.stderr)  # every step"
    ),
    "pbar.set_postfix(loss=loss.item(), mean=sum(losses) / len(losses))",
    'pbar.set_description("loss %.3f" % float(loss))',
    "self.logger.info('loss %s', loss.mean().item())",
    'writer.add_scalar("loss", loss.item(), i)',
    'wandb.log({"loss": loss.item(), "lr": group["lr"]}, step=i)',
    "tqdm.write(str([x.item() for x in parts]))",
    "sys.stdout.write(f'loss {loss.item()}\\r')",
    "self.pbar.write(str(loss.item()))",
    "accelerator.print(loss.item())",
    "console.print(loss.item())",
    "logging.log(logging.INFO, 'loss %s', loss.item())",
    "accelerator.log({'loss': loss.item()}, step=i)",
    "writer.add_histogram('loss', loss.detach().cpu(), i)",
]

FILES = [
    "f.write(f'{loss.item()}\\n')",
    "self.log_file.write(str(loss.item()))",
    "writer.writerow([i, loss.item()])",
    "print(loss.item(), file=f)",
]
"""What is written may be read by somebody: it is shown, and never called safe."""

# name: (what goes and what comes, line)
# fmt: off
MADE = {
    "range": ("for step in range(100):\n  opt.step()\n  {+if step % 50 == 0:\n    +}print(loss.item())\n", 3),
    "tabs, a progress bar and a with block": (
        "for i, b in tqdm(enumerate(l), total=3):\n\twith x:\n\t\topt.step()\n\t\t{+if i % 50 == 0:\n\t\t\t+}print(loss.item())\n",
        4),
    "counted up in a while loop": (
        "n = 0\nwhile n < 5:\n    opt.step()\n    {+if n % 50 == 0:\n        +}print(n, loss.item())\n    n += 1\n", 4),
    "an attribute counted up by the method": (
        ("class T:\n    def __init__(self):\n        self.n = 0\n    def step(self):\n        self.n += 1\n"
        "        {+if self.n % 50 == 0:\n            +}print(loss.item())\n"), 6),
    "the loop of the steps, not that of its parts": (
        "for i in range(9):\n    for part in parts:\n        {+if i % 50 == 0:\n            +}print(part.item())\n    opt.step()\n",
        3),
    "several lines, one of them inside a string": (
        ('for i in range(9):\n    opt.step()\n    {+if i % 50 == 0:\n        +}print("a"\n{+    +}          "b", """c\n'
        'd {}\n  e""".format(x.item()),\n\n          {+    +}y,\n    {+    +})\n'), 3),
    "an f-string of several lines": (
        ('for i in range(9):\n    opt.step()\n{+    if i % 50 == 0:\n    +}    print(f"""a {x.item()}\n  b {y}\n""", 1,\n'
        "      {+    +}2)\n"), 3),
    "a loop around a loop of one turn": (
        "for i in range(9):\n    for part in range(1):\n        opt.step()\n        {+if i % 50 == 0:\n            +}print(loss.item())\n",
        4),
    "a global that the function counts up": (
        "n = 0\ndef step():\n    global n\n    opt.step()\n    {+if n % 50 == 0:\n        +}print(loss.item())\n    n += 1\n",
        5),
    "a loop that counts nothing": (
        ("for{+ step,+} batch in {+enumerate(+}pbar{+)+}:\n    opt.step()\n{+    if step % 50 == 0:\n"
        "    +}    pbar.set_postfix(loss=loss.item())\n"), 3),
    "the steps of epochs, two values, a name that is taken": (
        ("for step in range(9):\n    for {+batch_number, (+}x, y{+)+} in {+enumerate(+}tqdm(loader{+)+}):  # train\n"
        "        opt.step()\n        {+if batch_number % 50 == 0:\n            +}print(loss.item())\n"), 4),
    "under a switch": (
        "for i in range(9):\n    opt.step()\n    if verbose and rank == 0:  # all\n        {+if i % 50 == 0:\n            +}print(loss.item())\n",
        4),
    "under a switch with an else": (
        ("for i in range(9):\n    opt.step()\n    if bar is None:\n        {+if i % 50 == 0:\n"
        "            +}print(loss.item())\n    else:\n        a()\n"), 4),
    "beside others under switches": (
        ("for i in range(9):\n    if dist.get_rank() == 0:\n        if not quiet:\n            a()\n"
        "            {+if i % 50 == 0:\n                +}print(loss.item())\n"), 5),
    "values in parentheses": (
        "for{+ step,+} (x, y) in {+(enumerate+}(zip(a,\n    b)){+)+}:\n{+    if step % 50 == 0:\n    +}    print(loss.item())\n",
        3),
}
# fmt: on

# fmt: off
LEFT_ALONE = {
    "a loop inside the function's step": (
        "def train(parts):\n    for i, part in enumerate(parts):\n        print(loss.item())\n    opt.step()\n", "no step counter"),
    "a parameter that each call begins again": (
        "n = 0\ndef train(n):\n    n += 1\n    opt.step()\n    print(n, loss.item())\n", "no step counter"),
    "a while loop that counts a tensor": ("n = torch.zeros(())\nwhile a:\n    n += 1\n    print(loss.item())\n", "no step counter"),
    "a while loop that counts in a branch": (
        "n = 0\nwhile a:\n    if b:\n        n += 1\n    print(loss.item())\n", "no step counter"),
    "a while loop that counts twice": ("n = 0\nwhile a:\n    n += 1\n    print(loss.item())\n    n += 1\n", "no step counter"),
    "a while loop that counts floats": ("n = 0.0\nwhile a:\n    n += 1\n    print(loss.item())\n", "no step counter"),
    "no name is free": ("for b in l:\n    print(loss.item(), step, batch_number, steps_done)\n", "usual names are taken"),
    "another enumerate": ("from x import enumerate\nfor b in l:\n    print(loss.item())\n", "something else in this file"),
    "a tuple that is looped over": ("for b in 1, 2:\n    print(loss.item())\n", "intended change"),
    "assigns": ("for i in range(9):\n    x = loss.item()\n", "not one statement"),
    "calls something else": ("for i in range(9):\n    history.append(loss.item())\n", "not a call that only logs"),
    "a file, whose content may be needed": ("for i in range(9):\n    f.write(str(loss.item()))\n", "into a file"),
    "a computed file": ("for i in range(9):\n    open(p).write(str(loss.item()))\n", "not a call that only logs"),
    "a warning": ("for i in range(9):\n    logging.log(30, loss.item())\n", "not a call that only logs"),
    "a threshold": ("for i in range(9):\n    if limit > 3:\n        print(loss.item())\n", "under a condition"),
    "one step": ("for i in range(9):\n    if i == 0:\n        print(loss.item())\n", "under a condition"),
    "a name that each step sets": (
        "for i in range(9):\n    due = i % 7 == 0\n    if due:\n        print(loss.item())\n", "under a condition"),
    "a clock": ("for i in range(9):\n    if time.time() == t:\n        print(loss.item())\n", "under a condition"),
    "a question that counts": ("for i in range(9):\n    if due():\n        print(loss.item())\n", "under a condition"),
    "an alarm": ("for i in range(9):\n    if a != b:\n        print(loss.item())\n", "under a condition"),
    "an error": ("for i in range(9):\n    try:\n        a()\n    except E:\n        print(loss.item())\n", "under a condition"),
    "print into a file": ("for i in range(9):\n    print(loss.item(), file=f)\n", "into a file"),
    "takes from a queue": ("for i in range(9):\n    print(queue.get(), loss.item())\n", "may do more than read"),
    "uses an iterator up": ("for i in range(9):\n    print(list(it), loss.item())\n", "may do more than read"),
    "lightning's log feeds callbacks": ("for i in range(9):\n    self.log('loss', loss.item())\n", "not a call that only logs"),
    "a math function called on a number": ("for i in range(9):\n    math.info(loss.item())\n", "not a call that only logs"),
    "wandb counts its calls": ("for i in range(9):\n    wandb.log({'loss': loss.item()})\n", "counts its own calls"),
    "draws from an iterator": ("for i in range(9):\n    print(next(it), loss.item())\n", "may do more than read"),
    "draws random numbers": ("for i in range(9):\n    print(torch.rand(1).item())\n", "may do more than read"),
    "runs the model": ("for i in range(9):\n    print(model(x).item())\n", "may do more than read"),
    "assigns inside": ("for i in range(9):\n    print(last := loss.item())\n", "more than read"),
    "no loop": ("print(loss.item())\n", "no step counter"),
    "no loop in its function": ("for i in range(9):\n    def f():\n        print(loss.item())\n", "no step counter"),
    "conditional": ("for i in range(9):\n    if i % 10 == 0:\n        print(loss.item())\n", "under a condition"),
    "one line with the loop": ("for i in range(9): print(loss.item())\n", "shares its line"),
    "one line with another": ("for i in range(9):\n    a(); print(loss.item())\n", "not one statement"),
    "after the loop": ("for i in range(9):\n    opt.step()\nelse:\n    print(loss.item())\n", "no step counter"),
    "the counter is set again": ("for i in range(9):\n    print(loss.item())\n    i = f(i)\n", "set again"),
    "asynchronous": ("async def f():\n    async for i in l:\n        print(loss.item())\n", "asynchronous"),
}
# fmt: on


@pytest.mark.parametrize("log", LOGS)
def test_every_kind_of_log(log, edit, repository):
    check(ENUMERATED.format(log), 3, WANTED.format(log), edit, repository)


@pytest.mark.parametrize("name", MADE)
def test_made(name, edit, repository):
    text, line = MADE[name]
    before, after = sides(text)
    check(before, line, after, edit, repository)


def check(before, line, after, edit, repository):
    wanted = edit("throttle", line, value="50", text=before.split("\n")[line - 1].strip())
    result = apply_edits(before.encode(), [wanted])
    assert result.decode() == after
    repository.put("trainer.py", before.encode())
    repository.expect_applies(
        diff_bytes(before.encode(), result, "trainer.py"), {"trainer.py": after.encode()}
    )
    with pytest.raises(Refused):
        apply_edits(result, [wanted])


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name, edit):
    before, why = LEFT_ALONE[name]
    line = next(
        n
        for n, text in enumerate(before.split("\n"), 1)
        if "loss.item()" in text or "item())" in text
    )
    with pytest.raises(Refused, match=why):
        apply_edits(before.encode(), [edit("throttle", line, value="50", safe=True)])


@pytest.mark.parametrize("log", FILES)
def test_a_file_is_written_less_often_only_where_that_is_not_called_safe(log, edit, repository):
    check(ENUMERATED.format(log), 3, WANTED.format(log), edit, repository)
    with pytest.raises(Refused, match="into a file"):
        apply_edits(ENUMERATED.format(log).encode(), [edit("throttle", 3, value="50", safe=True)])


@pytest.mark.parametrize("value", ["1", "0", "-5", "x", "", "5; import os", "1" * 9, "٣٣"])
def test_the_distance_is_a_plain_number(value, edit):
    with pytest.raises(Refused, match="not a number of steps"):
        apply_edits(ENUMERATED.format(LOGS[0]).encode(), [edit("throttle", 3, value=value)])


def test_two_distances_conflict(edit):
    with pytest.raises(Refused, match="another condition"):
        apply_edits(
            ENUMERATED.format(LOGS[0]).encode(),
            [edit("throttle", 3, value="50"), edit("throttle", 3, value="20")],
        )


def test_two_logs_of_a_loop_number_it_once(edit):
    before = "for b in l:\n    print(x.item())\n    opt.step()\n    print(y.item())\n"
    after = (
        "for step, b in enumerate(l):\n    if step % 50 == 0:\n        print(x.item())\n    "
        "opt.step()\n    if step % 50 == 0:\n        print(y.item())\n"
    )
    assert (
        apply_edits(
            before.encode(), [edit("throttle", line, value="50") for line in (2, 4)]
        ).decode()
        == after
    )
