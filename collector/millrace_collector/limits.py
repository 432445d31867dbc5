"""How much is taken: of all together by what the process has room for, of each key by its rate.

A key's rate is what it may send through all hosts. Each gives its share: what a second brings is
divided by the hosts that are there now, and what one request may have at most by all that there may
be, so that a request which is taken today is never too large tomorrow.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace_collector.refusals import BufferFull, TooLarge, TooMany
from millrace_collector.settings import Settings
from millrace_shared.keys import Key

AGAIN_SECONDS = 1.0

PerSecond = tuple[float, float]  # and the most at once


class Buffer:
    """Bytes that requests hold until they are answered."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """A request's part, empty at first; given back as a whole."""
        share = Share(self)
        try:
            yield share
        finally:
            share.give_back(share.used)


class Share:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.used = 0

    def take(self, size: int) -> None:
        """Raises BufferFull when there isn't room for as much now, TooLarge when there never is."""
        if self.used + size > self._buffer.size:
            raise TooLarge("The request takes more memory than there is; send fewer records.")
        if self._buffer.used + size > self._buffer.size:
            raise BufferFull(
                "Too much waits for Kafka already; send all again shortly.",
                retry_after_seconds=AGAIN_SECONDS,
            )
        self._buffer.used += size
        self.used += size

    def give_back(self, size: int) -> None:
        self._buffer.used -= size
        self.used -= size


class Allowance:
    """So many a second, and at once no more than ``most``, which is there again after a silence.

    Nothing is taken on credit: who may send is told so before more is done.
    """

    def __init__(
        self,
        what: str,
        per_second: float,
        most: float,
        now: Callable[[], float],
        who: str = "This key",
    ) -> None:
        self.most = max(1, int(most))
        self._who = who
        self._what = what
        self._per_second = per_second
        self._now = now
        self._left: float = self.most
        self._at = now()

    @property
    def left(self) -> float:
        return min(self.most, self._left + (self._now() - self._at) * self._per_second)

    def change(self, per_second: float, most: float) -> None:
        """From now on it is so many. What is left stays what it is: no change gives more at
        once."""
        if (per_second, max(1, int(most))) != (self._per_second, self.most):
            self._left, self._at = self.left, self._now()
            self._per_second, self.most = per_second, max(1, int(most))

    def charge(self, amount: int, again: int = 0) -> None:
        """Raises as `check`, and charges nothing then."""
        self.check(amount, again)
        self._left, self._at = self.left - amount, self._now()

    def check(self, amount: int, again: int = 0) -> None:
        """Could as much be charged now?

        Args:
            again: what it will take when it is sent again, if that is more.

        Raises TooMany when less is left, TooLarge when there is never as much.
        """
        if amount > self.most:
            raise TooLarge(
                f"{self._who} may send {self.most:,} {self._what} at once; send fewer records."
            )
        if amount > (left := self.left):
            wanted = min(self.most, max(amount, again))
            raise TooMany(
                f"{self._who} may send {self._per_second:,.1f} {self._what} a second through this"
                " host; make a pause.",
                retry_after_seconds=(wanted - left) / self._per_second,
            )


class Allowances:
    """Several of one thing, of which each has to have enough."""

    def __init__(self, *each: Allowance) -> None:
        self.each = each

    def charge(self, amount: int, again: int = 0) -> None:
        """Raises as `check`, and charges none then."""
        self.check(amount, again)
        for one in self.each:
            one.charge(amount, again)

    def check(self, amount: int, again: int = 0) -> None:
        """Raises as `Allowance.check` does for the first that has too little."""
        for one in self.each:
            one.check(amount, again)


class Limits:
    """What settings make of a rate."""

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self.now = now
        self._event_bytes = settings.event_bytes
        self._at_once_seconds = settings.burst_seconds / settings.all_doors
        # The slowest key, too, may send the largest record: in a CloudEvent, in Base64, compressed.
        self._largest = max((one.record_bytes for one in settings.streams.values()), default=0)

    def share(self, events: float, doors: int) -> tuple[PerSecond, PerSecond]:
        """Of records and of bytes, of so many events a second through all doors."""
        a_second, at_once = events / doors, events * self._at_once_seconds
        return (a_second, at_once), (
            a_second * self._event_bytes,
            max(at_once * self._event_bytes, 4 * self._largest),
        )


class Rate:
    """Records and bytes that may come by one name: a key's, or one address' by a public key."""

    def __init__(self, limits: Limits, events: float, doors: int, who: str) -> None:
        records, size = limits.share(events, doors)
        self._limits = limits
        self.events = Allowance("records", *records, limits.now, who)
        self.bytes = Allowance("bytes", *size, limits.now, who)

    def change(self, events: float, doors: int) -> None:
        records, size = self._limits.share(events, doors)
        self.events.change(*records)
        self.bytes.change(*size)


class Sender:
    """Who sends. Its requests are worked on one after the other: who sends many at once has no more
    turns than others, and what is left of an allowance is one request's, not lost in parts on many
    that are refused in the end."""

    def __init__(self, name: str, *rates: Rate) -> None:
        self.name = name
        self.turn = asyncio.Lock()
        self.rates = rates
        self.events = Allowances(*(rate.events for rate in rates))
        self.bytes = Allowances(*(rate.bytes for rate in rates))


class Senders:
    """Those of each key, as the keys are now.

    Everybody can read a public key, as a page has it. So each address has its own rate and turns
    within the key's, and none uses up the others'. Of the addresses that sent last so many are
    remembered.
    """

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._limits = Limits(settings, now)
        self._most_addresses = settings.addresses
        self._of_keys: dict[str, Sender] = {}
        self._of_addresses: OrderedDict[tuple[str, str], Sender] = OrderedDict()

    def of(self, name: str, key: Key, doors: int, address: str) -> Sender:
        """Who sends from that address by that key, while so many doors share its rate."""
        sender = self._of_keys.get(name)
        if sender is None:
            rate = Rate(self._limits, key.events_per_second, doors, "This key")
            sender = self._of_keys[name] = Sender(name, rate)
        (rate,) = sender.rates
        rate.change(key.events_per_second, doors)
        if key.client_events_per_second is None:
            return sender
        return self._of_address(name, rate, key.client_events_per_second, doors, address)

    def _of_address(self, name: str, of_key: Rate, events: int, doors: int, address: str) -> Sender:
        place = name, address
        sender = self._of_addresses.get(place)
        if sender is None:
            own = Rate(self._limits, events, doors, "An address with this key")
            sender = self._of_addresses[place] = Sender(name, own, of_key)
        self._of_addresses.move_to_end(place)
        if len(self._of_addresses) > self._most_addresses:
            self._of_addresses.popitem(last=False)
        sender.rates[0].change(events, doors)
        return sender
