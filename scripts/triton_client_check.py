"""Asks a gateway, as one tenant, with Triton's own HTTP client, and prints what it was told as one JSON object.

    python triton_client_check.py HOST:PORT TENANT MODEL INPUTS.json [VERSION]

INPUTS.json holds {"inputs": [[number, ...], ...]}, as written by train_digits.py. Without VERSION the tenant's pin decides.
Exit code 1 when a call fails; what was reached until then is printed.
"""

import json
import sys

import numpy as np
import tritonclient.http as triton


def main(address: str, tenant: str, model: str, inputs: str, version: str = "") -> int:
    with open(inputs, encoding="utf-8") as file:
        rows = np.array(json.load(file)["inputs"], dtype=np.float32)
    headers = {"x-tenant": tenant}
    seen = {}
    client = triton.InferenceServerClient(url=address, network_timeout=30.0, connection_timeout=10.0)
    try:
        seen["live"] = client.is_server_live(headers=headers)
        seen["ready"] = client.is_server_ready(headers=headers)
        seen["model_ready"] = client.is_model_ready(model, version, headers=headers)
        seen["metadata"] = client.get_model_metadata(model, version, headers=headers)
        tensor = triton.InferInput("predict", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows, binary_data=False)
        output = triton.InferRequestedOutput("predict", binary_data=False)
        answer = client.infer(model, [tensor], version, [output], request_id="triton-client", headers=headers)
        body = answer.get_response()
        seen["model_name"] = body.get("model_name")
        seen["model_version"] = body.get("model_version")
        seen["id"] = body.get("id")
        seen["predictions"] = answer.as_numpy("predict").reshape(-1).tolist()
        return 0
    except Exception as error:  # Whatever the client raises is what a user would see.
        seen["error"] = f"{type(error).__name__}: {error}"
        return 1
    finally:
        client.close()
        print(json.dumps(seen))


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
