"""Files of HDFS, by WebHDFS of whichever NameNode is active: no JVM for some kilobytes a second."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

MISSING = "FileNotFoundException"


class Unreachable(Exception):
    """No NameNode answers as the active one, or a DataNode doesn't."""


class Missing(Exception):
    """HDFS has no such file."""


class Files:
    """Paths are absolute, without scheme.

    Args:
        namenodes: web addresses (host:port) of all of them, active or not.
        user: in whose name files are read.
        timeout: seconds for one of them to answer.
    """

    def __init__(self, namenodes: Sequence[str], user: str, timeout: float) -> None:
        self._addresses = list(namenodes)
        self._user = user
        self._timeout = timeout

    def names_after(self, folder: str, name: str) -> list[str]:
        """The names in a folder that come after this one, in order. Not all of them, where there
        are more than a NameNode lists at once."""
        # In lower case: a NameNode lowers the names that it gets, and then doesn't know startAfter.
        content = self._ask(folder, "LISTSTATUS_BATCH", startafter=name)
        listed = json.loads(content)["DirectoryListing"]["partialListing"]["FileStatuses"]
        return [status["pathSuffix"] for status in listed["FileStatus"]]

    def read(self, path: str) -> str:
        """Raises Missing."""
        return self._ask(path, "OPEN").decode()

    def size(self, path: str) -> int | None:
        """In bytes; None where there is no such file."""
        try:
            content = self._ask(path, "GETFILESTATUS")
        except Missing:
            return None
        return int(json.loads(content)["FileStatus"]["length"])

    def _ask(self, path: str, operation: str, **more: str) -> bytes:
        query = urllib.parse.urlencode({"op": operation, "user.name": self._user} | more)
        for address in list(self._addresses):
            url = f"http://{address}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
            try:
                with urllib.request.urlopen(url, timeout=self._timeout) as response:
                    content: bytes = response.read()
            except urllib.error.HTTPError as error:
                if _exception(error) == MISSING:
                    raise Missing(path) from None
                continue  # a standby
            except (OSError, HTTPException):
                continue
            # It will most likely be the active one the next time as well.
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            return content
        raise Unreachable(f"no active NameNode gives {path}")


def _exception(error: urllib.error.HTTPError) -> str:
    """The name of the Java exception that HDFS answers with; empty when it is none."""
    try:
        answer: Any = json.load(error)
        return str(answer["RemoteException"]["exception"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
