"""Reading YAML, which takes most of the time of a command that asks little of the cluster."""

from typing import Any

import yaml

# libyaml's parser takes a tenth of the time; a wheel of PyYAML has it, a source build may not.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """Returns what one document says. Raises yaml.YAMLError."""
    return yaml.load(text, LOADER)
