"""The keys that sign the loop's records, read from files, and the connection to the loop's own Kafka with them."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from connectors.kafka.connection import KafkaConnection, digest_of_files
from connectors.redaction import RedactedBlock, secret, unreadable_files
from policies.errors import UserError
from policies.signatures import Author, Signatures
from policies.units import Duration, millis_of, parse_duration

SHORTEST_KEY = 32
"""Characters: half of what `openssl rand -hex 32` gives."""


class Signing(RedactedBlock):
    """Keys by who signs with them. Of each list the first signs and all are believed, so that keys can be changed.

    A side without keys neither signs nor checks. Files are read again when they change.
    """

    observed_keys: list[Path] = Field(
        default_factory=list, max_length=8, description="Key files for what collectors and executors publish."
    )
    decided_keys: list[Path] = Field(
        default_factory=list, max_length=8, description="Key files for what the query and the actuators publish."
    )
    command_keys: list[Path] = Field(
        default_factory=list, max_length=8, description="Key files for what people command."
    )
    required: bool = Field(
        default=True, description="Refuse what has no valid signature. `false` while not every process signs yet."
    )
    tolerance: Duration = Field(
        default=parse_duration("5m"),
        description="What may lie between signing and appending: clocks that differ, and Kafka away for a moment.",
    )

    def files(self) -> dict[str, Path | None]:
        """All files it names, by place."""
        lists = {"observed_keys": self.observed_keys, "decided_keys": self.decided_keys}
        lists["command_keys"] = self.command_keys
        return {f"{name}[{number}]": file for name, files in lists.items() for number, file in enumerate(files)}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Files that cannot be read or hold no key, and keys that two sides share."""
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
        """With the keys as the files have them now.

        Raises:
            UserError: a file cannot be read, or holds no key; its name is said, its content is not.
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
    """The loop's own Kafka: how to reach it, and how its records are signed."""

    signing: Signing | None = Field(
        default=None, description="Present: records are signed, and what is not is not believed."
    )

    def signatures(self) -> Signatures | None:
        """How records are signed and checked; None: not at all.

        Raises:
            UserError: a key file cannot be used.
        """
        return None if self.signing is None else self.signing.signatures()

    def fingerprint(self) -> str:
        """Changes with the key files, too."""
        own = super().fingerprint()
        return own if self.signing is None else f"{own}/{digest_of_files(self.signing.files())}"


def unsigned(kafka: LoopKafka) -> str | None:
    """Why readings of this process would be believed by nobody; None: they would."""
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
