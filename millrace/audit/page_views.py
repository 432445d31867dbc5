"""Which requests are page views, by the same data as the jobs."""

from dataclasses import dataclass

from millrace.plan import Plan
from millrace.weblog import Request


@dataclass(frozen=True)
class PageViewRule:
    """Which requests are page views; the data that the jobs are configured with, too."""

    methods: list[str]
    statuses: list[int]
    asset_extensions: list[str]
    page_characters: int  # of which a page's name has the first

    @classmethod
    def of(cls, plan: Plan) -> "PageViewRule":
        settings = plan.spark.settings.traffic
        return cls(
            methods=settings.page_view_methods,
            statuses=settings.page_view_statuses,
            asset_extensions=settings.page_view_asset_extensions,
            page_characters=settings.page_characters,
        )

    def __call__(self, request: Request) -> bool:
        extension = page_of(request.url).rsplit(".", 1)[-1].lower()
        return (
            request.method in self.methods
            and request.status in self.statuses
            and extension not in self.asset_extensions
        )


def page_of(url: str) -> str:
    """The page that a URL shows: its path."""
    return url.split("?", 1)[0].split("#", 1)[0]
