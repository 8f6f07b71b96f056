"""The keys that sign the loop's records, read from files, and the connection to the loop's own Kafka."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from connectors.http.tls import FileStamps, stamps_of
from connectors.kafka.connection import KafkaConnection
from connectors.redaction import RedactedBlock, secret, unreadable_files
from policies.errors import UserError
from policies.signatures import Author, Signatures
from policies.units import Duration, millis_of, parse_duration

SHORTEST_KEY = 32
"""Minimum length in characters; `openssl rand -hex 32` prints twice as many."""


class Signing(RedactedBlock):
    """Keys by author. The first key of a list signs and all keys of it are accepted, so that keys can be rotated.

    A process without keys neither signs nor checks. Files are read again when they change.
    """

    observed_keys: list[Path] = Field(
        default_factory=list, max_length=8, description="Key files for records of collectors and executors."
    )
    decided_keys: list[Path] = Field(
        default_factory=list, max_length=8, description="Key files for records of the query and the actuators."
    )
    command_keys: list[Path] = Field(
        default_factory=list, max_length=8, description="Key files for commands of people."
    )
    required: bool = Field(
        default=True, description="Refuse records without a valid signature. `false` while not every process signs yet."
    )
    tolerance: Duration = Field(
        default=parse_duration("5m"),
        description="Maximum time between signing and appending. Clocks may differ, and Kafka may be away for a while.",
    )

    def files(self) -> dict[str, Path | None]:
        """Return all named files by their place."""
        lists = {"observed_keys": self.observed_keys, "decided_keys": self.decided_keys}
        lists["command_keys"] = self.command_keys
        return {f"{name}[{number}]": file for name, files in lists.items() for number, file in enumerate(files)}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield files that cannot be read or hold no key, and keys that two authors share."""
        if not self.files():
            yield "observed_keys", "name a key file here, or in decided_keys or command_keys, or leave `signing` out"
        unreadable = dict(unreadable_files(self.files()))
        yield from ((place.partition("[")[0], why) for place, why in unreadable.items())
        if unreadable:
            return
        try:
            self.signatures()
        except UserError as error:
            yield "observed_keys", str(error)

    def signatures(self) -> Signatures:
        """Return the present keys of the files.

        Raises:
            UserError: a file cannot be read, or holds no key; the message names the file and quotes no content.
        """
        keys = {
            Author.OBSERVER: self._keys("observed_keys", self.observed_keys),
            Author.LOOP: self._keys("decided_keys", self.decided_keys),
            Author.PERSON: self._keys("command_keys", self.command_keys),
        }
        return Signatures(keys, self.required, millis_of(self.tolerance))

    def _keys(self, name: str, files: list[Path]) -> tuple[bytes, ...]:
        return tuple(_key(file, f"kafka.signing.{name}") for file in files)


class LoopKafka(KafkaConnection):
    """The loop's own Kafka: its connection, and the keys of its records."""

    signing: Signing | None = Field(
        default=None, description="Present: records are signed, and records without a valid signature are refused."
    )

    def signatures(self) -> Signatures | None:
        """Return the keys to sign and check records; None if records are not signed.

        Raises:
            UserError: a key file cannot be used.
        """
        return None if self.signing is None else self.signing.signatures()

    def fingerprint(self) -> FileStamps:
        """Return the state of all named files, the key files included."""
        return (*super().fingerprint(), *stamps_of(self.signing))


def why_unsigned(kafka: LoopKafka) -> str | None:
    """Return why readings of this process would be refused; None if they would be accepted."""
    if kafka.signing is None or kafka.signing.observed_keys or not kafka.signing.required:
        return None
    return "readings are signed here, and kafka.signing.observed_keys names no key for this process"


def _key(file: Path, place: str) -> bytes:
    text = (secret(None, file, place) or "").strip()
    if len(text) < SHORTEST_KEY:
        raise UserError(
            f"{place}: {file} has {len(text)} characters, and a key has {SHORTEST_KEY} at the least: make one with "
            f"'openssl rand -hex 32 > {file}'."
        )
    return text.encode()
