"""Whether a Kafka broker refuses a login, by the error code of its own protocol.

Librdkafka has one code for a wrong password and for a broker that goes away while it is greeted
(decision 0046). The broker does tell: its answer to the login has a code, which a second login, made
here, reads. That is asked twice: a broker that is starting may not know its users yet.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LOGIN_SECONDS = 10
BETWEEN_SECONDS = 2
"""How long after a refusal the second one has to come."""

_HANDSHAKE, _AUTHENTICATE = 17, 36
_REFUSED = 58
"""SASL_AUTHENTICATION_FAILED: the broker has looked at user and password, and does not take them."""
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_LARGEST_ANSWER = 1 << 20
_CLIENT = b"floodmark"


def is_login_refused(settings: Mapping[str, Any]) -> bool:
    """Whether a broker refuses user and password of librdkafka's settings, and did so twice.

    False where nobody answers, and where it cannot be asked in this way (no SASL, another mechanism,
    a certificate that is not trusted): the outage that it looks like is then believed.
    """
    user, password = settings.get("sasl.username"), settings.get("sasl.password")
    mechanism = str(settings.get("sasl.mechanism", ""))
    is_known = mechanism == "PLAIN" or mechanism in _HASHES
    if user is None or password is None or not is_known:
        return False
    if not _is_refused_once(settings):
        return False
    time.sleep(BETWEEN_SECONDS)
    return _is_refused_once(settings)


def _is_refused_once(settings: Mapping[str, Any]) -> bool:
    for address in str(settings.get("bootstrap.servers", "")).split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with _connected(host.strip("[]"), int(port), settings) as connection:
                return _Login(connection, settings).is_refused()
        except (OSError, ValueError, struct.error):  # of ssl too; the next broker may answer
            continue
    return False


@contextmanager
def _connected(host: str, port: int, settings: Mapping[str, Any]) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=LOGIN_SECONDS) as plain:
        if settings.get("security.protocol") != "SASL_SSL":
            yield plain
            return
        trusted = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        if "ssl.certificate.location" in settings:
            certificate, key = (settings[f"ssl.{part}.location"] for part in ("certificate", "key"))
            trusted.load_cert_chain(certificate, key, settings.get("ssl.key.password"))
        with trusted.wrap_socket(plain, server_hostname=host) as secured:
            yield secured


class _Login:
    """One login over a connection."""

    def __init__(self, connection: socket.socket, settings: Mapping[str, Any]) -> None:
        self._connection = connection
        self._mechanism = str(settings["sasl.mechanism"])
        self._user, self._password = settings["sasl.username"], settings["sasl.password"]
        self._number = 0
        self._until = time.monotonic() + LOGIN_SECONDS

    def is_refused(self) -> bool:
        """Whether the broker says no to user and password; raises OSError or ValueError for less."""
        answer = self._asked(_HANDSHAKE, 1, _string(self._mechanism.encode()))
        if struct.unpack_from(">h", answer)[0] != 0:
            return (
                False  # another mechanism, or a broker of before SASL: nobody looked at the login
            )
        if self._mechanism == "PLAIN":
            said = f"\0{self._user}\0{self._password}"
            return self._authenticated(said.encode())[0] == _REFUSED
        return self._is_refused_by_scram()

    def _is_refused_by_scram(self) -> bool:
        name = str(self._user).replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={secrets.token_hex(16)}"
        code, challenge = self._authenticated(f"n,,{first}".encode())
        if code:
            return code == _REFUSED
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        final = f"c=biws,r={said['r']}"
        signed = f"{first},{challenge.decode()},{final}".encode()
        proof = self._proof(base64.b64decode(said["s"]), int(said["i"]), signed)
        code, _ = self._authenticated(f"{final},p={proof}".encode())
        return code == _REFUSED

    def _proof(self, salt: bytes, rounds: int, signed: bytes) -> str:
        kind = _HASHES[self._mechanism]
        salted = hashlib.pbkdf2_hmac(kind, str(self._password).encode(), salt, rounds)
        key = hmac.digest(salted, b"Client Key", kind)
        signature = hmac.digest(hashlib.new(kind, key).digest(), signed, kind)
        return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()

    def _authenticated(self, said: bytes) -> tuple[int, bytes]:
        """The code of the broker, and what it says further."""
        answer = self._asked(_AUTHENTICATE, 0, struct.pack(">i", len(said)) + said)
        code, length = struct.unpack_from(">hh", answer)
        at = 4 + max(0, length)
        (size,) = struct.unpack_from(">i", answer, at)
        return code, answer[at + 4 : at + 4 + max(0, size)]

    def _asked(self, key: int, version: int, body: bytes) -> bytes:
        self._number += 1
        head = struct.pack(">hhi", key, version, self._number) + _string(_CLIENT)
        self._connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._read(4))
        if not 4 <= size <= _LARGEST_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            # Of the whole login: the timeout of a socket is for each piece.
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {LOGIN_SECONDS} s")
            self._connection.settimeout(left)
            part = self._connection.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return parts


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
