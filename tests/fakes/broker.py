"""A broker's clients of BookKeeper clusters, as its agent sees them."""


class Clients:
    """They do as they are told, unless they are broken."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.read: tuple[str, ...] = ()
        self.broken: set[str] = set()

    def open(self, name: str) -> None:
        if name in self.broken:
            raise ConnectionError(f"no way to {name}")
        self.opened.append(name)

    def writes_since_ack(self) -> tuple[str, ...]:
        return (*self.opened[-1:], *self.opened[-1:])

    def reads(self) -> tuple[str, ...]:
        return self.read

    def close(self, name: str) -> None:
        if name in self.broken:
            raise ConnectionError(f"{name} has readers again")
        self.closed.append(name)
