"""LitServe as its documentation shows batching."""

import sys

import litserve
from bundle_classifier import MAX_BATCH, MAX_WAIT_S, Classifier


class Api(litserve.LitAPI):
    def setup(self, device):
        self.classifier = Classifier()

    def decode_request(self, request):
        return self.classifier.encode(request["text"])

    def batch(self, inputs):
        return inputs

    def predict(self, x):
        return self.classifier.score(x)

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    api = Api(max_batch_size=MAX_BATCH, batch_timeout=MAX_WAIT_S, api_path="/v1/predict")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60)
    server.run(
        port=int(sys.argv[1]),
        host="127.0.0.1",
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
    )
