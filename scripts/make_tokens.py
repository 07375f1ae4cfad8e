#!/usr/bin/env python3
"""Makes keys and tokens with PyJWT: prints {"jwks": {...}, "tokens": [{"name", "token", "good"}, ...]}.

usage: make_tokens.py ISSUER
"""
import json
import sys
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm


def keys():
    """Private keys with the algorithms that each is for, and their public form."""
    pairs = [("rsa", rsa.generate_private_key(65537, 2048), ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"], RSAAlgorithm)]
    for name, curve, alg in [("p256", ec.SECP256R1(), "ES256"), ("p384", ec.SECP384R1(), "ES384"), ("p521", ec.SECP521R1(), "ES512")]:
        pairs.append((name, ec.generate_private_key(curve), [alg], ECAlgorithm))
    pairs.append(("ed", ed25519.Ed25519PrivateKey.generate(), ["EdDSA"], OKPAlgorithm))
    return pairs


def main():
    issuer = sys.argv[1]
    now = int(time.time())
    base = {"iss": issuer, "aud": "holdfast", "tenant": "acme", "sub": "user-1", "iat": now, "nbf": now - 5, "exp": now + 3600}
    jwks, tokens = [], []
    for kid, private, algs, kind in keys():
        public = json.loads(kind.to_jwk(private.public_key()))
        jwks.append({**public, "kid": kid, "use": "sig"})
        for alg in algs:
            def add(name, good, **changes):
                claims = {k: v for k, v in {**base, **changes}.items() if v is not None}
                made = jwt.encode(claims, private, algorithm=alg, headers={"kid": kid})
                tokens.append({"name": f"{alg} {name}", "token": made, "good": good})

            add("good", True)
            add("list of audiences", True, aud=["other", "holdfast"])
            add("fraction", True, exp=now + 3600.336)
            add("clock four seconds ahead", True, iat=now + 4, nbf=now + 4)
            add("expired four seconds ago", True, exp=now - 4)
            add("expired", False, exp=now - 600)
            add("not yet", False, nbf=now + 3600)
            add("issued in the future", False, iat=now + 600)
            add("without an end", False, exp=None)
            add("for others", False, aud="other")
            add("of another issuer", False, iss=issuer + "x")
            add("without a tenant", False, tenant=None)
            good = tokens[-12]["token"]
            head, payload, signature = good.split(".")
            flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
            tokens.append({"name": f"{alg} with another signature", "token": f"{head}.{payload}.{flipped}", "good": False})
    print(json.dumps({"jwks": {"keys": jwks}, "tokens": tokens}))


if __name__ == "__main__":
    main()
