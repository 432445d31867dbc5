"""What a run does, as lines of JSON on a file descriptor, for the toolkit to show."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: millrace_events
type: notification
short_description: plays, tasks and results as lines of JSON
description:
  - Writes one object a line to the file descriptor in E(MILLRACE_EVENTS_FD); without it, nothing.
  - C(event) is V(play) or V(task) with C(name), V(retry) with C(host) and C(left), or V(result)
    with C(host), C(status) and C(message), which is empty unless it failed.
  - C(status) is V(ok), V(changed), V(skipped), V(failed) or V(unreachable).
options: {}
author: Millrace
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "millrace_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self._out = None
        if descriptor := os.environ.get("MILLRACE_EVENTS_FD"):
            self._out = os.fdopen(int(descriptor), "w", buffering=1)
        else:
            self.disabled = True

    def _tell(self, event, **content):
        self._out.write(json.dumps({"event": event, **content}) + "\n")

    def _result(self, result, status, message=""):
        self._tell("result", host=result.host.get_name(), status=status, message=message)

    def v2_playbook_on_play_start(self, play):
        self._tell("play", name=play.get_name())

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._tell("task", name=task.get_name())

    def v2_runner_on_ok(self, result):
        self._result(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_skipped(self, result):
        self._result(result, "skipped")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._result(result, "ok" if ignore_errors else "failed", message(result.result))

    def v2_runner_on_unreachable(self, result):
        self._result(result, "unreachable", message(result.result))

    def v2_runner_retry(self, result):
        left = result.result["retries"] - result.result["attempts"]
        self._tell("retry", host=result.host.get_name(), left=left)


def message(result):
    """What a failed task says: of a loop, its items' words; of a command, what it printed, too."""
    failed = [item for item in result.get("results", []) if item.get("failed")]
    if failed:
        return "\n".join(f"{item['item']}: {message(item)}" for item in failed)
    said = (result.get(key, "") for key in ("msg", "stderr", "stdout"))
    return "\n".join(str(part).strip() for part in said if part)
