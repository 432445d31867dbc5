"""Ansible's own `linear` strategy over Mitogen, which keeps a Python on each host for a whole run.

By default each task starts one there: docs/adr/0021-one-python-on-each-host.md has what that took.
Mitogen is one of the toolkit's packages; this file only tells Ansible of it.
"""

import functools

import ansible_mitogen.loaders
import ansible_mitogen.strategy
from ansible.utils.display import Display

DOCUMENTATION = """
name: mitogen_linear
short_description: the linear strategy, with one Python process on each host instead of one per task
description:
  - Tasks run, and are told of, as by P(ansible.builtin.linear#strategy).
author: Millrace
"""

# How ansible-core begins to say that a strategy that isn't its own will be of no use some day.
KNOWN = "Use of strategy plugins not included in ansible.builtin"


def without_what_is_known(deprecated):
    """Makes a Display's `deprecated` silent about this strategy, which the decision has weighed.

    Whatever else is deprecated is told.
    """

    @functools.wraps(deprecated)
    def heard(msg, *args, **kwargs):
        _skip_stackwalk = True  # ansible-core looks through such a frame for who deprecates
        if not msg.startswith(KNOWN):
            deprecated(msg, *args, **kwargs)

    return heard


# There is one Display. It is asked to tell as soon as this file has been loaded.
display = Display()
display.deprecated = without_what_is_known(display.deprecated)

LINEAR = ansible_mitogen.loaders.strategy_loader.get("linear", class_only=True)


class StrategyModule(ansible_mitogen.strategy.StrategyMixin, LINEAR):
    """All of it is Mitogen's."""
