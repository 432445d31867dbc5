"""docs/api.md lists every call of the API, and no other."""

import re

from millrace_api import app, declared, login, operations, session_routes

from millrace.common.paths import REPO

ROUTERS = (app.router, declared.router, session_routes.router, operations.router, login.router)
LISTED = re.compile(r"^\| `([A-Z]+ /[^`?]+)(?:\?([^`]*))?` \|", re.MULTILINE)


def test_every_call_is_documented_with_its_ranges() -> None:
    listed = dict(LISTED.findall((REPO / "docs" / "api.md").read_text()))
    offered = {
        f"{method} {named}": route
        for router in ROUTERS
        for route in router.routes
        if route.include_in_schema
        for method in route.methods
        for named in [re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), route.path)]
    }
    assert listed.keys() == offered.keys()
    for path, parameters in listed.items():
        known = {parameter.alias for parameter in offered[path].dependant.query_params}
        required = {
            parameter.alias
            for parameter in offered[path].dependant.query_params
            if parameter.field_info.is_required()
        }
        assert required <= set(filter(None, parameters.split("&"))) <= known, path
