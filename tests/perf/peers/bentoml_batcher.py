"""BentoML with adaptive batching, the batchable method reached by HTTP without a second service."""

from typing import Annotated

import bentoml
from bundle_classifier import MAX_BATCH, Classifier
from pydantic import BeforeValidator

# A batchable method takes lists; the load generator sends one text.
Texts = Annotated[
    list[str], BeforeValidator(lambda text: [text] if isinstance(text, str) else text)
]


@bentoml.service(workers=1, traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Scorer:
    def __init__(self):
        self.classifier = Classifier()

    # A latency limit of 10 ms would refuse most of the load with 503.
    @bentoml.api(
        batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=60_000, route="/v1/predict"
    )
    def predict(self, text: Texts) -> list[dict]:
        return self.classifier.score([self.classifier.encode(one) for one in text])
