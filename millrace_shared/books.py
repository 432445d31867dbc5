"""When a batch in a stream's books comes out even: the gateway and the toolkit say the same."""


def difference(records: int | None, archived: int, dead_letters: int) -> int:
    """Records that went nowhere; negative where more was archived than Kafka has.

    Args:
        records: that Kafka has; None, and nothing differs, where it has forgotten some of them, or
            nobody could read them.
    """
    return 0 if records is None else records - archived - dead_letters
