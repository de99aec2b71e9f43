"""Secrets in what is kept of a run: masked or left out, said, and never in the way of a patch."""

import subprocess

import pytest
from auditor.reports import as_json
from hypothesis import given
from hypothesis import strategies as st

from auditor import redaction
from auditor.cli import rejudged
from auditor.cli.main import main
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.verify.arms import require_unchanged
from auditor.judging import build_report, catalogue
from auditor.judging.engine import Judgement
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.writer import content_digest, masked_lines, store_sources
from auditor.syntax.config_files import worth_keeping

HEX = "0123456789abcdef0123456789abcdef01234567"

SECRETS = [
    f'wandb.login(key="{HEX}")',
    f'os.environ["WANDB_API_KEY"] = "{HEX}"',
    'os.environ.setdefault("NGC_CLI_KEY", "abcd")',
    'login("hf_abcdefghijklmnopqrstuvwx")',
    "config = {'pass': 'hunter2'}",
    'db_password = "correct-horse"',
    'uri = "https://me:hunter2@host/x"',
    f'where = "AccountName=x;AccountKey={"a" * 86}=="',
    'aws = "AKIAIOSFODNN7EXAMPLE"',
    'slack_webhook = "https://hooks/x"',
]

HARMLESS = [
    'pad_token = "<pad>"',
    'eos_token: str = "</s>"',
    'writer.add_fields("steps", {"pass": "quiet"})',
    "sorted(rows, key=by_length)",
    'group = data.groupby(key="length")',
    'tokens = tokenizer("a text")',
    "password = getpass.getpass()",
    'token = os.environ["HF_TOKEN"]',
    f'checksum = "{HEX}"',
    'ENV_GITHUB_TOKEN = "GITHUB_TOKEN"',
    'raise KeyError("missing")',
    'help = "the API key: see the docs"',
]


@pytest.mark.parametrize("line", SECRETS)
def test_a_secret_in_a_source_is_masked_in_place(line):
    raw = f"import os\n{line}\nx = 1\n".encode()
    masked, found = redaction.redacted(raw)
    assert [each.line for each in found] == [2]
    assert len(masked) == len(raw)
    assert b"***" in masked
    assert masked.split(b"\n")[:1] + masked.split(b"\n")[2:] == [b"import os", b"x = 1", b""]
    for secret in ("hunter2", HEX, "horse", "abcdefgh", "EXAMPLE", "aaaa", '"abcd"', "hooks"):
        assert secret.encode() not in masked
    assert redaction.restored(masked, raw) == raw


def test_secrets_that_are_masked_alike_come_back_to_their_own_lines():
    """A dict would give both the second secret: the file would count as changed for ever."""
    raw = b'key(\n    api_key="hunter2",\n)\nkey(\n    api_key="letmein",\n)\n\nx = 1\n'
    masked, found = redaction.redacted(raw)
    assert (len(found), redaction.restored(masked, raw)) == (2, raw)
    assert redaction.restored(masked, raw.replace(b"x = 1", b"\n\nx = 2")) == raw
    one_less = raw.replace(b'    api_key="letmein",\n', b"")
    # not the live file: it counts as changed
    assert redaction.restored(masked, one_less) == raw.replace(b"letmein", b"hunter2")
    three = b'key(\n    api_key="1234abc",\n)\n' + raw
    assert redaction.restored(masked, three) == masked


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_no_secret_stays(line):
    assert redaction.redacted(line.encode()) == (line.encode(), ())


def test_a_private_key_is_masked_whole():
    raw = b"-----BEGIN RSA PRIVATE KEY-----\r\nMIIabc\r\nxyz\r\n-----END RSA PRIVATE KEY-----\r\nx = 1\r\n"
    masked, _ = redaction.redacted(raw)
    assert masked.split(b"\r\n")[1:3] == [b"******", b"***"]
    assert masked.endswith(b"-----END RSA PRIVATE KEY-----\r\nx = 1\r\n")


def test_lines_of_any_length_are_read_in_little_time():
    for part in (b"a", b"key", b"\n", b"-----BEGIN PRIVATE KEY-----\n", b"token."):
        redaction.redacted(part * (300_000 // len(part)), ".yaml")
    line = b"x" * redaction.LONGEST_LINE + b' url = "https://me:hunter2@host/x"'
    assert b"hunter2" not in redaction.redacted(line)[0]


@given(st.binary(max_size=200), st.sampled_from([".py", ".yaml", ".txt"]))
def test_a_mask_keeps_lines_and_lengths(raw, suffix):
    masked, _ = redaction.redacted(raw, suffix)
    assert [len(line) for line in masked.split(b"\n")] == [len(line) for line in raw.split(b"\n")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"token": "abc"}'),
        ("c.json", '{"db": {"pass": "x1"}}'),
        ("c.yaml", f"key: {HEX}"),
        ("c.yaml", f'wandb:\n  - key: "{HEX}"'),
        ("run.sh", "export NGC_CLI_KEY=abc"),
        ("run.sh", "python train.py --api-key abc"),
        (".env", "AZURE=AccountKey=" + "b" * 86 + "=="),
        ("c.toml", 'pem = """-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----"""'),
    ],
)
def test_a_configuration_file_with_a_secret_is_left_out(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    opened = [] if name == "run.sh" else [str(tmp_path / name)]
    assert worth_keeping(opened, str(tmp_path)) == ([], [str(tmp_path / name)])


def test_ordinary_settings_are_kept(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "sort_key: length\nnum_tokens: 5\npad_token: '<pad>'\nkey: loss\nrun: ab12\n"
    )
    (tmp_path / "run.sh").write_text("python train.py --num-tokens 5 --key loss --token $HUB\n")
    assert len(worth_keeping([str(tmp_path / "c.yaml")], str(tmp_path))[0]) == 2


def test_arguments():
    words = """
        --token abc --lr 0.1 --api-key=xyz --max_tokens=5 https://u:p1@h/x --token --pad_token
        <pad>
    """.split()
    shown, names, values = redaction.redacted_arguments(words)
    told = "--token *** --lr 0.1 --api-key=*** --max_tokens=5 *** --token --pad_token <pad>"
    assert shown == tuple(told.split())
    assert names == ("--token", "--api-key", "argument 7")
    assert values == ("abc", "xyz", "https://u:p1@h/x")


def test_a_short_value_of_an_argument_does_not_blank_words():
    assert redaction.redacted_text("bpe tokens, hunter2", ("bpe", "hunter2")) == "bpe tokens, ***"


# -- with patches ----------------------------------------------------------------------------------

SOURCE = (
    f'import torch\nAPI_KEY = "{HEX}"\ntorch.autograd.set_detect_anomaly(True)\n'
    + "x = 1\n" * 6
    + "loss.backward(retain_graph=True)\n"
)


def recorded(folder, **more):
    file = folder / "train.py"
    file.write_text(SOURCE)
    recording = folder / "audit" / "recording"
    recording.mkdir(parents=True)
    stored = store_sources(recording, str(folder), iter([str(file)]))
    masked = masked_lines(str(folder), [str(file)])
    manifest = {"schema": SCHEMA, "cwd": str(folder), "sources": stored, "masked": masked}
    manifest |= {"outcome": "completed", "device": "cpu", **more}
    write_manifest(recording, {**manifest, "passes": [{"name": "quiet", "steps": 3}]})
    return Recording(recording)


def report_of(recording):
    judged = Judgement((), (ANOMALY, RETAIN), ())
    return build_report.report(Evidence(recording), judged, catalogue.own_rules())


def finding(code, line, action, call, *, keyword="", value=""):
    site = Site("train.py", line, "", SOURCE.splitlines()[line - 1].strip())
    remedy = Remedy(code, (Edit(site, action, call, keyword, value, safe=True),))
    return Finding(site, code, code=code, key=code, severity=Severity.WARNING, remedy=remedy)


ANOMALY = finding(
    "NUM009", 3, "rename_call", "set_detect_anomaly", value="set_detect_anomaly(False)"
)
RETAIN = finding("GRAPH002", 10, "drop_keyword", "backward", keyword="retain_graph")


def test_a_diff_beside_a_secret_is_not_shown_and_others_apply(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = report_of(recorded(tmp_path))
    remedies = {each.code: each.remedy for each in report.findings}
    beside, apart = remedies["NUM009"], remedies["GRAPH002"]
    assert (beside.diff, beside.refused) == (None, build_report.BESIDE_SECRET)
    assert apart.diff is not None
    subprocess.run(["git", "apply", "--check", "-"], input=apart.diff.encode(), check=True)
    assert HEX not in as_json.Json().render(report).decode()


def test_fix_makes_both_changes_and_takes_them_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = report_of(recorded(tmp_path))
    (tmp_path / "audit" / "report.json").write_bytes(as_json.Json().render(report))
    monkeypatch.setattr(rejudged, "judged_again", lambda report, recording: report)
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["fix", "audit", "--apply"])
        assert not ended.value.code
    after = SOURCE.replace("(True)", "(False)").replace("retain_graph=True", "")
    assert (tmp_path / "train.py").read_text() == after
    subprocess.run(["git", "apply", "audit/fixes.undo.patch"], check=True)
    assert (tmp_path / "train.py").read_text() == SOURCE


def test_a_run_is_repeated_only_with_its_arguments_and_unchanged_files(tmp_path):
    recording = recorded(tmp_path, argv=["--token", "***"], masked_arguments=["--token"])
    with pytest.raises(AuditProblem, match="the value of --token was masked"):
        require_unchanged(recording)
    recording.manifest["argv"] = ["--token", "hunter2"]
    require_unchanged(recording)
    (tmp_path / "train.py").write_text(SOURCE.replace("x = 1", "x = 2"))
    with pytest.raises(AuditProblem, match="has changed since the audit"):
        require_unchanged(recording)


def test_verification_runs_what_the_user_wrote(tmp_path):
    recording = recorded(tmp_path)
    assert recording.source_bytes("train.py") != SOURCE.encode()
    assert recording.original_bytes("train.py") == SOURCE.encode()
    (tmp_path / "train.py").unlink()
    assert recording.original_bytes("train.py") == recording.source_bytes("train.py")
    assert content_digest(b"") != content_digest(b"x")


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        (b'headers = {"Authorization": "Bearer %s"}', b"abcdefghij1234567890abcdefghij"),
        (b'curl -H "Authorization: Basic %s"', b"dXNlcjpwYTU1d29yZA=="),
        (b"wandb login %s", HEX.encode()),
    ],
)
def test_what_a_header_or_a_login_is_given_is_masked(line, secret):
    masked, found = redaction.redacted(line % secret, ".sh")
    assert secret not in masked and len(masked) == len(line % secret) and found


def test_a_key_of_letters_alone_is_masked():
    """By its length, which is that of Cloudant's passwords; a letter less is none."""
    key = b"abcdefghijklmnopqrstuvwx"
    assert key not in redaction.redacted(b'clou_pw = "%s"' % key)[0]
    text = b'clou_pw = "%s"' % key[:-1]
    assert redaction.redacted(text) == (text, ())


def test_prose_about_bearers_is_left_alone():
    text = b"# the bearer implementation and the basic configuration_of_everything"
    assert redaction.redacted(text, ".py") == (text, ())
