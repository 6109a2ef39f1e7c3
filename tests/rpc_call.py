"""One gRPC call without a network: what Ray Serve hands to the ingress beside the message."""

import asyncio

from door import Door

from serve_app.rpc.door import RpcDoor


class FakeContext:
    """Keeps what is set; the request id goes back, as with Ray Serve."""

    def __init__(self, **sent):
        self._sent = [(name.replace("_", "-"), value) for name, value in sent.items()]
        request_id = sent.get("request_id", "made-by-ray")
        self._trailing = [("request_id", request_id)]
        self.code = None
        self.details = None

    def invocation_metadata(self):
        return self._sent

    def trailing_metadata(self):
        return self._trailing

    def set_trailing_metadata(self, trailing_metadata):
        self._trailing = self._trailing + trailing_metadata

    def set_code(self, code):
        self.code = code

    def set_details(self, details):
        self.details = details

    @property
    def trailing(self):
        return dict(self._trailing)


class RpcCaller:
    """Calls the service of a bundle, over lanes of a known formula."""

    def __init__(self, folder, *, api_keys=(), **settings):
        self.door = Door(folder, **settings)
        self.rpc = RpcDoor(self.door.versions, observers=[self.door.observer], api_keys=api_keys)

    @property
    def record(self):
        return self.door.record

    def call(self, message, **sent):
        """Return the answer and the context of one call; bytes go as they are."""
        raw = message if isinstance(message, bytes) else message.SerializeToString()
        context = FakeContext(**sent)
        return asyncio.run(self.rpc.predict(raw, context)), context
