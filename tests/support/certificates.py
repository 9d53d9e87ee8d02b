"""Certificates of an authority of our own, so that tests meet servers that speak TLS."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = IPv4Address("127.0.0.1")


@dataclass(frozen=True)
class Certified:
    """A key and its certificate as PEM."""

    key: bytes
    """PKCS #8: the one form that Java, librdkafka and PostgreSQL all read."""
    certificate: bytes


@dataclass(frozen=True)
class Authority:
    """Signs certificates for an hour."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> Self:
        """An authority that nobody knows yet."""
        key, name = ec.generate_private_key(ec.SECP256R1()), _name("floodmark tests")
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        built = _begun(key, name, name).add_extension(constraint, critical=True)
        return cls(key, built.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> bytes:
        """What clients are told to trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def for_loopback(self) -> Certified:
        """A certificate for a server on 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(LOOPBACK), x509.DNSName("localhost")])
        begun = _begun(key, _name("localhost"), self.certificate.subject)
        signed = begun.add_extension(names, critical=False).sign(self.key, hashes.SHA256())
        return Certified(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            signed.public_bytes(serialization.Encoding.PEM),
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
    )
