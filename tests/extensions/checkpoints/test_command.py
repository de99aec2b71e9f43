"""``audit checkpoint`` from outside: exit codes, table, the latest good one, JSON, folders."""

import json

import pytest
import torch
from click.testing import CliRunner

from auditor.cli.main import main


def save(path, step, *, poison=False, rate=0.1):
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=100)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    if poison:
        model.weight.data[0, 0] = float("nan")
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    torch.save(
        {
            **{k: v.state_dict() for k, v in parts.items()},
            "step": step,
            "rng": torch.get_rng_state(),
        },
        path,
    )


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, ["checkpoint", *map(str, args)])


def test_one_good_file(checkpoint):
    save("a.pt", 5)
    result = checkpoint("a.pt")
    assert result.exit_code == 0
    assert result.output.startswith("a.pt  good  torch zip")
    assert "step 5, optimizer, scheduler, rng" in result.output and "latest" not in result.output


def test_the_latest_good_of_many_is_named_by_its_step_not_its_time(checkpoint):
    save("late.pt", 900, poison=True)
    save("b.pt", 700)
    save("a.pt", 300)
    result = checkpoint(".")
    assert result.exit_code == 1
    assert result.output.rstrip().endswith("latest good: b.pt")
    assert "late.pt: model.weight is 6.25% NaN" in result.output


def test_of_two_with_the_same_step_the_later_epoch_is_the_latest_good(checkpoint):
    save("b.pt", 700)
    for epoch in (2, 1):
        torch.save({**torch.load("b.pt"), "epoch": epoch}, f"{epoch}.pt")
    assert checkpoint("1.pt", "2.pt").output.rstrip().endswith("latest good: 2.pt")


@pytest.mark.parametrize(
    ("config", "lacks"),
    [
        ("fp16: true", True),
        ("fp16:\n  enabled: true", True),
        ("use_fp16: true", True),
        ("precision: fp16", True),
    ]
    + [
        ("fp16: false", False),
        ("bf16: true", False),
        ("fp16:\n  enabled: false", False),
        ("loss: {enabled: true}", False),
    ],
)
def test_a_scaler_is_missed_where_float16_is_switched_on(checkpoint, tmp_path, config, lacks):
    save("a.pt", 5)
    (tmp_path / "c.yaml").write_text(config)
    assert ("holds no GradScaler state" in checkpoint("a.pt", "--config", "c.yaml").output) == lacks


def test_json_and_the_report(checkpoint, tmp_path):
    save("a.pt", 5, poison=True)
    result = checkpoint("a.pt", "--json", "--out", "out")
    report = json.loads(result.stdout)
    assert report["schema"] == "audit-report/1"
    assert [finding["code"] for finding in report["findings"]] == ["NUM013"]
    skipped = {
        verdict["code"]: verdict["reason"]
        for verdict in report["verdicts"]
        if verdict["status"] == "skipped"
    }
    assert skipped == {"CKPT006": "no --config was given to compare the rates with"}
    assert "model.weight" in (tmp_path / "out" / "report.html").read_text()


def test_one_unreadable_among_good_ones_ends_in_two(checkpoint, tmp_path):
    save("a.pt", 5)
    (tmp_path / "b.pt").write_text("not a checkpoint")
    result = checkpoint("a.pt", "b.pt")
    assert result.exit_code == 2 and "a.pt  good" in result.stdout


def test_the_report_holds_the_state_of_each_file(checkpoint):
    save("b.pt", 700)
    save("a.pt", 300)
    save("late.pt", 900, poison=True)
    told = json.loads(checkpoint("a.pt", "b.pt", "late.pt", "--json").stdout)["checkpoints"]
    assert [(each["name"], each["good"], each["latest"]) for each in told] == [
        ("a.pt", True, False),
        ("b.pt", True, True),
        ("late.pt", False, False),
    ]
    assert "step 700, optimizer" in told[1]["said"]
    assert [each["verdict"] for each in told] == ["good", "good", "damaged"]
