"""Ray Serve as its documentation shows it: a FastAPI ingress and a deployment with @serve.batch."""

import asyncio

from bundle_classifier import MAX_BATCH, MAX_WAIT_S, Classifier
from fastapi import FastAPI
from pydantic import BaseModel
from ray import serve

app = FastAPI()


class Request(BaseModel):
    text: str


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=256)
class Scorer:
    def __init__(self):
        self.classifier = Classifier()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=MAX_WAIT_S)
    async def score(self, texts):
        return await asyncio.to_thread(self._score, texts)

    def _score(self, texts):
        return self.classifier.score([self.classifier.encode(text) for text in texts])

    async def __call__(self, text):
        return await self.score(text)


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=2000)
@serve.ingress(app)
class Ingress:
    def __init__(self, scorer):
        self.scorer = scorer

    @app.post("/v1/predict")
    async def predict(self, request: Request):
        return await self.scorer.remote(request.text)


application = Ingress.bind(Scorer.bind())
