#!/usr/bin/python
"""Ansible module: directories of HDFS over WebHDFS, which spares a JVM for each of them."""

import json
import urllib.error
import urllib.parse
import urllib.request

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
---
module: hdfs_directories
short_description: Directories of HDFS with their owners and modes
description:
  - Asks the active NameNode over WebHDFS and changes only what differs.
options:
  namenodes:
    description: Web addresses (host:port) of the NameNodes; whichever is active is used.
    type: list
    elements: str
    required: true
  user:
    description: HDFS's superuser.
    type: str
    required: true
  directories:
    description: The directories; a parent stands before its children.
    type: list
    elements: dict
    required: true
    options:
      path: {description: Absolute path, type: str, required: true}
      owner: {description: Owning user, type: str, required: true}
      mode: {description: Octal permissions, type: str, required: true}
attributes:
  check_mode: {support: full, description: Reports what it would change}
author: Millrace
"""

TIMEOUT_SECONDS = 10


class WebHdfs:
    """The few calls that are needed, on the NameNode that is active."""

    def __init__(self, namenodes, user):
        self.user = user
        self.base = next(filter(None, map(self._if_active, namenodes)), None)

    def status(self, path):
        """Owner and permission of a path, or None where there is nothing."""
        try:
            found = self._call("GET", path, "GETFILESTATUS")["FileStatus"]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        return {"owner": found["owner"], "mode": found["permission"]}

    def make(self, path, owner, mode):
        self._call("PUT", path, "MKDIRS")
        self._call("PUT", path, "SETOWNER", owner=owner)
        self._call("PUT", path, "SETPERMISSION", permission=mode)

    def _if_active(self, address):
        query = f"http://{address}/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus"
        try:
            with urllib.request.urlopen(query, timeout=TIMEOUT_SECONDS) as response:
                state = json.load(response)["beans"][0]["State"]
        except (OSError, LookupError):
            return None
        return f"http://{address}/webhdfs/v1" if state == "active" else None

    def _call(self, method, path, operation, **parameters):
        query = urllib.parse.urlencode({"op": operation, "user.name": self.user, **parameters})
        request = urllib.request.Request(
            f"{self.base}{urllib.parse.quote(path)}?{query}", method=method
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            return json.loads(response.read() or "{}")


def main():
    module = AnsibleModule(
        argument_spec={
            "namenodes": {"type": "list", "elements": "str", "required": True},
            "user": {"type": "str", "required": True},
            "directories": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "str", "required": True},
                    "owner": {"type": "str", "required": True},
                    "mode": {"type": "str", "required": True},
                },
            },
        },
        supports_check_mode=True,
    )
    hdfs = WebHdfs(module.params["namenodes"], module.params["user"])
    if hdfs.base is None:
        module.fail_json(msg=f"no active NameNode among {', '.join(module.params['namenodes'])}")
    before, after = {}, {}
    try:
        for wanted in module.params["directories"]:
            path, target = wanted["path"], {"owner": wanted["owner"], "mode": wanted["mode"]}
            current = hdfs.status(path)
            if current == target:
                continue
            before[path], after[path] = current, target
            if not module.check_mode:
                hdfs.make(path, **target)
    except urllib.error.HTTPError as error:
        module.fail_json(msg=f"{error.url}: {error.read().decode(errors='replace')}")
    module.exit_json(changed=bool(after), diff={"before": before, "after": after})


if __name__ == "__main__":
    main()
