"""The gRPC service as servers and clients know it: its name, its method, how it is registered."""

from typing import Any

import grpc

from serve_app.rpc.predict_pb2 import PredictRequest, PredictResponse

SERVICE = "textlane.v1.Predictor"
PREDICT_METHOD = f"/{SERVICE}/Predict"


class PredictorStub:
    """What a Python client calls; other languages generate theirs from ``predict.proto``."""

    def __init__(self, channel: grpc.Channel) -> None:
        """Take a channel of ``grpc`` or of ``grpc.aio``."""
        self.Predict = channel.unary_unary(
            PREDICT_METHOD,
            request_serializer=PredictRequest.SerializeToString,
            response_deserializer=PredictResponse.FromString,
        )


def add_predictor(servicer: Any, server: Any) -> None:
    """Register the service; ``grpc_servicer_functions`` of the Ray Serve file names this.

    Requests reach the servicer as bytes: gRPC itself answers a message that it cannot read with
    UNKNOWN and a Python exception, and so large a one is not read before its size is known.
    """
    handler = grpc.unary_unary_rpc_method_handler(
        servicer.Predict, response_serializer=PredictResponse.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Predict": handler}),)
    )
