"""The gateway's own settings."""

import json
from dataclasses import asdict

from millrace_gateway import settings as configuration


def test_settings_are_read_as_they_were_written(tmp_path, settings):
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps(asdict(settings), default=str))
    assert configuration.load(file) == settings
