"""Sixty ways in which a secret is written, with random values: for the tests of what leaves."""

import random
import re
import string

_CHARSETS = {
    "h": "0123456789abcdef",
    "d": string.digits,
    "U": string.ascii_uppercase + string.digits,
    "w": string.ascii_letters + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "u": string.ascii_letters + string.digits + "-_",
    "p": string.ascii_lowercase + string.digits,
}
_FIELD = re.compile(r"<([a-zA-Z])(\d+)>")

FORMATS = (
    # a name anywhere in a line, and what it is given
    "WANDB_API_KEY=<h40>",
    "env WANDB_API_KEY=<h40> python train.py",
    "failed: OPENAI_API_KEY=<w32> is not valid",
    "aws_access_key_id=AKIA<U16>",
    "aws_secret_access_key=<b40>",
    "client_secret=<w32>",
    "?access_token=<w32>&page=1",
    "NEPTUNE_API_TOKEN=eyJ<w60>",
    "COMET_API_KEY=<w25>",
    "CLEARML_API_SECRET_KEY: <w50>",
    "COHERE_API_KEY=<w40>",
    "HEROKU_API_KEY=<h8>-<h4>-<h4>-<h4>-<h12>",
    "db_password=<w12>",
    "connect(host=db, password=<w12>)",
    "{'api_key': '<w32>'}",
    '{"username": "me", "key": "<h32>"}',
    "AccountKey=<b86>==",
    "SharedAccessSignature sig=<b43>%3D",
    "--api-key <w32>",
    "--hub_token=<w32>",
    "wandb: key <h40>",
    "wandb: <h40>",
    "machine api.wandb.ai login user password <h40>",
    # headers and commands
    "Authorization: Bearer <u40>1",
    "Authorization: Basic <b24>1==",
    "Authorization: token <h40>",
    "X-Api-Key: <w32>",
    "Set-Cookie: session=<u40>; HttpOnly",
    "Cookie: sessionid=<p32>",
    "curl -u user:<w16> https://host/x",
    "curl --user user:<w16> https://host/x",
    "postgres://user:<w16>@host:5432/db",
    "https://user:<w16>@host/x.git",
    # keys with a shape of their own
    "AIza<u35>",
    "GOCSPX-<u28>",
    "ya29.<u60>",
    "npm_<w36>",
    "pypi-AgEIcHlwaS5vcmc<u60>",
    "hf_<w34>",
    "ghp_<w36>",
    "github_pat_<w22>_<w59>",
    "glpat-<u20>",
    "sk-<w48>",
    "sk-proj-<u74>",
    "sk-ant-api03-<u80>",
    "sk_live_<w24>",
    "gsk_<w52>",
    "nvapi-<u64>",
    "r8_<w37>",
    "dapi<h32>",
    "dckr_pat_<u27>",
    "dop_v1_<h64>",
    "xoxb-<d12>-<d12>-<w24>",
    "https://hooks.slack.com/services/T<U8>/B<U8>/<w24>",
    "https://discord.com/api/webhooks/<d18>/<u68>",
    "SG.<u22>.<u43>",
    "<d10>:AA<u33>",
    "eyJhbGciOi<w20>.eyJ<w40>.<u43>",
    "lsv2_pt_<h32>_<h10>",
    "glsa_<w32>_<h8>",
    "hvs.<u90>",
    "pplx-<w48>",
    "tskey-auth-<w12>-<w32>",
    "AGE-SECRET-KEY-1<U58>",
    "pcsk_<w6>_<w60>",
)


def drawn(seed: int) -> list[tuple[str, tuple[str, ...]]]:
    """Each format with values of this seed, and the values that must not be seen: those of eight
    characters and more.
    """
    rng = random.Random(seed)
    return [_drawn(rng, each) for each in FORMATS]


def _drawn(rng: random.Random, form: str) -> tuple[str, tuple[str, ...]]:
    values: list[str] = []

    def value(field: re.Match[str]) -> str:
        letters = _CHARSETS[field[1]]
        made = "".join(rng.choice(letters) for _ in range(int(field[2])))
        if field[1] not in "dUh":
            made = made[:-2] + "a7"  # a password of letters alone is a word
        values.append(made)
        return made

    text = _FIELD.sub(value, form)
    return text, tuple(each for each in values if len(each) >= 8)
