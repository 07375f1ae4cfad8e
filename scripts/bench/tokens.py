"""Signed tokens for the full policy: one of each tenant, of an RSA-2048 key made for this run. Signed by the `openssl` program."""

import base64
import json
import subprocess
import time

ISSUER = "bench"
AUDIENCE = "holdfast"


def make(folder, tenants):
    """Writes `keys.json`, the key set, and `tokens`, a token a line in the order of the tenants. Returns the tokens."""
    key = folder / "key.pem"
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key))
    modulus = _openssl("rsa", "-in", str(key), "-noout", "-modulus").decode().strip().removeprefix("Modulus=")
    number = {"kty": "RSA", "kid": "b1", "alg": "RS256", "use": "sig", "n": _base64(bytes.fromhex(modulus)), "e": "AQAB"}
    (folder / "keys.json").write_text(json.dumps({"keys": [number]}))
    tokens = [_sign(key, {"iss": ISSUER, "aud": AUDIENCE, "sub": f"u-{tenant}", "tenant": tenant}) for tenant in tenants]
    (folder / "tokens").write_text("".join(f"{token}\n" for token in tokens))
    return tokens


def _sign(key, claims):
    head = {"alg": "RS256", "kid": "b1", "typ": "JWT"}
    claims = {**claims, "exp": int(time.time()) + 86_400}
    text = ".".join(_base64(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims))
    return f"{text}.{_base64(_openssl('dgst', '-sha256', '-sign', str(key), given=text.encode()))}"


def _openssl(*arguments, given=b""):
    return subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=True, timeout=60).stdout


def _base64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
