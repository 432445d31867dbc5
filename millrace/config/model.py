"""What all models of ``configs/`` are made of."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Profile = Literal["small", "standard", "large"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
Scalar = bool | int | float | str
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]


def absent(part: Any) -> bool:
    """Returns whether a part isn't in this plan: then it is in neither the plan nor its digest."""
    return part is None


class Model(BaseModel):
    """Strict: an unknown key or ``"3"`` where 3 is meant is a mistake worth stopping for."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Setting(Model):
    """One tuned value with the reason it isn't the default; ``value`` may differ per profile."""

    value: Scalar | list[Scalar] | dict[Profile, Scalar]
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)

    def at(self, profile: Profile) -> Any:
        """The value under a profile; the nearest smaller profile answers where one isn't given."""
        if not isinstance(self.value, dict):
            return self.value
        for name in reversed(PROFILES[: PROFILES.index(profile) + 1]):
            if name in self.value:
                return self.value[name]
        return self.value[next(name for name in PROFILES if name in self.value)]
