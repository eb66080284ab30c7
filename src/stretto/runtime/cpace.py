"""Agree on a key by a secret that can be guessed, without giving anybody anything to check guesses by.

CPace, the balanced password-authenticated key exchange of the IETF's crypto forum (draft-irtf-cfrg-cpace): both ends
map the secret to a generator, and exchange keys by it as Diffie and Hellman do. Who does not know the secret and takes
part in one exchange can try one secret; who only listens can try none. The group is that of the squares modulo the safe
prime of RFC 3526, group 15 (3,072 bits), in which Python's integers do all that is needed; the generator is the square
of a hash, as in SPEKE (IEEE 1363.2). The handshake confirms the key, and binds it to the identities of both ends and to
all that was said; without that SPEKE had weaknesses.

An exponentiation takes about 6 ms of CPU, and each end makes two.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache

SHARE_BYTES = 384
EXPONENT_BITS = 256
"""Bits of a private exponent: twice the strength of the group, 128 bits (RFC 3526, section 8)."""
_HASH_BYTES = SHARE_BYTES + 16
"""Bytes of a hash that is reduced by the prime; with 16 more than the prime has the result is as good as uniform."""


PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7"
    "ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C"
    "BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF",
    16,
)
"""RFC 3526, section 4. It is 2 q + 1 with a prime q, so its squares are a group of prime order."""


@lru_cache(maxsize=64)
def generator(secret: bytes, identities: bytes) -> int:
    """The generator that a secret gives; both ends, in the same order, are part of it."""
    said = len(secret).to_bytes(4, "big") + secret + identities
    hashed = hashlib.shake_256(b"stretto CPace MODP-3072" + said).digest(_HASH_BYTES)
    return pow(int.from_bytes(hashed, "big") % PRIME, 2, PRIME)


class Exchange:
    """One end of an exchange; it serves once.

    Attributes:
        share: what the other end needs.
    """

    def __init__(self, secret: bytes, identities: bytes) -> None:
        self._exponent = secrets.randbits(EXPONENT_BITS) | 1 << (EXPONENT_BITS - 1)
        self.share = pow(generator(secret, identities), self._exponent, PRIME).to_bytes(SHARE_BYTES, "big")

    def key(self, share: bytes) -> bytes:
        """The key, given the other end's share: the same at both ends if they have the same secret.

        Raises:
            ValueError: the share is none that an honest end could send.
        """
        value = int.from_bytes(share, "big")
        if not 1 < value < PRIME - 1:
            raise ValueError("it sent a share that is out of range")
        # squared, so that nothing about the exponent shows if the share is no square
        return pow(value, 2 * self._exponent, PRIME).to_bytes(SHARE_BYTES, "big")
