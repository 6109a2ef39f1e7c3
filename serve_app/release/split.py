"""Which keys the candidate answers and which requests are shadowed: pure hashes."""

import hashlib

_POINT_BITS = 53
"""What a float holds exactly, so that the highest point stays below 1."""


def key_point(salt: str, key: str) -> float:
    """Return the place of a key in [0, 1): the same for ever, even over all keys.

    Args:
        salt: of a release; another one shuffles the keys anew.
        key: what is to get the same answerer each time.
    """
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    text = f"{len(salt)}:{salt}{key}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - _POINT_BITS)) / (1 << _POINT_BITS)


def is_candidate_key(key: str, *, salt: str, weight: float) -> bool:
    """Return whether the candidate answers a key; a rising weight keeps those it has.

    Args:
        key: the client's ``X-Release-Key``, else the request's id.
        salt: the routing table's.
        weight: the routing table's, 0 to 1.
    """
    return key_point(salt, key) < weight


def is_shadowed(request_id: str, *, salt: str, share: float) -> bool:
    """Return whether the other version answers a request as well.

    Args:
        request_id: not the key, or always the same users' texts would be compared.
        salt: the routing table's.
        share: of the requests, 0 to 1.
    """
    return key_point(f"{salt}/shadow", request_id) < share
