"""The Spark drivers as they register themselves in ZooKeeper; see millrace_jobs.coordination."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from millrace.common.errors import OperatorError
from millrace.plan import Plan

TIMEOUT = 4  # s; a frozen server accepts the call and never answers


def drivers(plan: Plan) -> list[dict[str, Any]]:
    """Each living driver: application, run, host, version, state, jvm, python; ``since`` when it
    has been in this state, and ``standing_by_since`` (else None), in seconds since 1970.

    OperatorError when ZooKeeper doesn't answer.
    """
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # what is down is the answer
    client = KazooClient(",".join(plan.addresses("zookeeper", "client")), timeout=TIMEOUT)
    try:
        client.start(TIMEOUT)
        return [driver for name in plan.applications for driver in _registered(client, plan, name)]
    except (KazooException, KazooTimeoutError) as error:
        raise OperatorError(
            f"ZooKeeper doesn't say who drives: {error}", "`millrace status` shows what is down"
        ) from error
    finally:
        client.stop()
        client.close()


def _registered(client: KazooClient, plan: Plan, application: str) -> Iterator[dict[str, Any]]:
    folder = f"{plan.names.zookeeper.applications}/{application}/drivers"
    with suppress(NoNodeError):  # never started; or it has gone since it was listed
        for name in client.get_children(folder):
            with suppress(NoNodeError):
                content, _ = client.get(f"{folder}/{name}")
                yield json.loads(content) | {"application": application}
