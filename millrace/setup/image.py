"""The base image of local hosts: Debian from its own packages, no container registry involved."""

import hashlib
import subprocess
from contextlib import closing
from pathlib import Path

import docker
from docker.errors import APIError, ImageNotFound

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE, CONFIGS
from millrace.config import Model, read_yaml, validate
from millrace.setup.packages import ensure_command
from millrace.setup.processes import as_root, run
from millrace.setup.steps import Report

RECIPE = CONFIGS / "image.yaml"
SCRIPT = Path(__file__).with_name("image.sh")
REPOSITORY = "millrace/host"


class Recipe(Model):
    """``configs/image.yaml``."""

    release: str
    packages: list[str]
    disable: list[str]
    mask: list[str]


def load_recipe() -> Recipe:
    return validate(Recipe, read_yaml(RECIPE), RECIPE)


def image_tag() -> str:
    """The image's name, from what goes into it: another recipe is another image."""
    return f"{REPOSITORY}:{recipe_digest(load_recipe(), SCRIPT.read_text())}"


def recipe_digest(recipe: Recipe, script: str) -> str:
    return hashlib.sha256(f"{recipe.model_dump_json()}\0{script}".encode()).hexdigest()[:12]


def ensure_image(report: Report) -> None:
    """Make the image unless the Docker engine has it."""
    recipe, tag = load_recipe(), image_tag()
    with closing(docker.from_env(timeout=600)) as client:
        if _exists(client, tag):
            report(f"{tag}, already made")
            return
        root = CACHE / f"image-{tag.partition(':')[2]}"
        _remove(root)
        root.parent.mkdir(parents=True, exist_ok=True)
        try:
            report(f"unpacking Debian {recipe.release}")
            _bootstrap(root, recipe)
            report("importing")
            _import(client, root, tag)
        finally:
            _remove(root)
    report(tag)


def _exists(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _bootstrap(root: Path, recipe: Recipe) -> None:
    debootstrap = ensure_command("debootstrap", ["debootstrap", "debian-archive-keyring"])
    command = [debootstrap, "--variant=minbase", f"--include={','.join(recipe.packages)}"]
    run(
        as_root([*command, recipe.release, root]),
        what="debootstrap",
        hint="it needs a Debian mirror: check the network, or set http_proxy to a proxy with one",
    )
    run(as_root(["chroot", root, "sh", "-eu", "-c", SCRIPT.read_text()]), what=str(SCRIPT))
    systemctl = ["systemctl", f"--root={root}"]
    run(as_root([*systemctl, "disable", *recipe.disable]), what="disabling units")
    run(as_root([*systemctl, "mask", *recipe.mask]), what="masking units")


def _import(client: docker.DockerClient, root: Path, tag: str) -> None:
    """Streams the folder into the engine."""
    repository, _, digest = tag.partition(":")
    changes = ['CMD ["/sbin/init"]', "ENV container=docker", f"LABEL millrace.recipe={digest}"]
    pack = as_root(["tar", "-C", root, "--numeric-owner", "-c", "."])
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
        try:
            client.api.import_image_from_stream(
                tar.stdout, repository=repository, tag=digest, changes=changes
            )
        except APIError as error:
            raise OperatorError(
                f"the Docker engine refused the image: {error.explanation}",
                "its disk may be full: `docker system df` tells, `docker image prune` makes room",
            ) from error
    if tar.returncode:
        client.images.remove(tag, force=True)
        raise OperatorError(f"packing {root} failed: tar exited {tar.returncode}")


def _remove(root: Path) -> None:
    """Delete a root folder, after what an interrupted debootstrap left mounted in it."""
    if root.exists():
        # shutil would follow a mounted /proc: --one-file-system is the seat belt.
        cleanup = 'umount -ql "$0/proc" "$0/sys" 2>/dev/null; rm -rf --one-file-system "$0"'
        run(as_root(["sh", "-c", cleanup, root]), what=f"removing {root}")
