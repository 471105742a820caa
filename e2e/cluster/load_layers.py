#!/usr/bin/env python3
"""Loads images of the Docker engine into nodes of a kind cluster; a node gets only the layers that it lacks.

    e2e/cluster/load_layers.py NODE,NODE... IMAGE...

`kind load` sends every layer each time, and Penstock's images differ from build to build in a small one. This
reads `docker save` once, keeps what some node's containerd has not got, and imports it as an OCI layout in
which the other layers are only named.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os.path import dirname, normpath
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Blob:
    digest: str
    size: int

    def described(self, media_type: str, **more: object) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": self.digest, "size": self.size, **more}


def main(nodes: list[str], images: list[str]) -> None:
    images = [image for image in images if not all(is_there(node, image) for node in nodes)]
    if not images:
        return
    held = {node: set(ctr(node, "content", "ls", "--quiet").split()) for node in nodes}
    # In /var/tmp, because /tmp may be memory.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch)
        blobs = saved(images, folder, set.intersection(*held.values()))
        index = described(blobs, folder)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: send(node, index, folder, held[node]), nodes))


def ctr(node: str, *arguments: str) -> str:
    return output("docker", "exec", node, "ctr", "--namespace=k8s.io", *arguments)


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def is_there(node: str, image: str) -> bool:
    """Whether a node has the engine's image under its name. An image's id is its configuration's digest.

    One whose name another build has taken since is still listed, without it.
    """
    wanted = output("docker", "image", "inspect", "--format={{.Id}}", image).strip()
    listed = json.loads(output("docker", "exec", node, "crictl", "images", "--output=json"))["images"]
    return any(each["id"] == wanted and full_name(image) in each["repoTags"] for each in listed)


def full_name(image: str) -> str:
    return image if "/" in image else f"{default_registry()}/library/{image}"


def saved(images: list[str], folder: Path, held_by_all: set[str]) -> dict[str, Blob]:
    """The files of `docker save` by path; those that some node lacks are in the folder, by digest."""
    blobs = {}
    links = {}
    with (
        subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            source = archive.extractfile(member) if member.isfile() else None
            if source is None:
                if member.issym():  # a layer that stands in the archive twice
                    target = normpath(f"{dirname(member.name)}/{member.linkname}")
                    links[member.name] = target
                continue
            partial = folder / "partial"
            digest = hashlib.sha256()
            with partial.open("wb") as out:
                while data := source.read(CHUNK_BYTES):
                    digest.update(data)
                    out.write(data)
            blob = Blob(f"sha256:{digest.hexdigest()}", member.size)
            blobs[member.name] = blob
            if blob.digest in held_by_all:
                partial.unlink()
            else:
                partial.rename(folder / blob.digest)
    if process.returncode != 0:
        raise SystemExit(f"docker save {' '.join(images)} ended with code {process.returncode}")
    return blobs | {path: blobs[target] for path, target in links.items()}


def default_registry() -> str:
    """The registry that a name without one means, as the engine says it."""
    command = ["docker", "info", "--format", "{{.IndexServerAddress}}"]
    address = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return str(urlsplit(address.strip()).hostname).removeprefix("index.")


def described(blobs: dict[str, Blob], folder: Path) -> bytes:
    """Write a manifest for each image; answers the index that names them."""
    manifests = []
    listing = json.loads((folder / blobs["manifest.json"].digest).read_bytes())
    for entry in listing:
        layers = [blobs[path].described(LAYER) for path in entry["Layers"]]
        config = blobs[entry["Config"]].described(CONFIG)
        data = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
        blob = Blob(f"sha256:{hashlib.sha256(data.encode()).hexdigest()}", len(data))
        (folder / blob.digest).write_text(data)
        names = [full_name(tag) for tag in entry["RepoTags"]]
        named = ({"io.containerd.image.name": name} for name in names)
        manifests += [blob.described(MANIFEST, annotations=each) for each in named]
    return json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()


def send(node: str, index: bytes, folder: Path, held: set[str]) -> None:
    command = ["docker", "exec", "--interactive", node, "ctr", "--namespace=k8s.io", "images", "import"]
    command += ["--all-platforms", "--snapshotter=overlayfs", "-"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process,
        tarfile.open(fileobj=process.stdin, mode="w|") as archive,
    ):
        for name, data in (("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), ("index.json", index)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for path in sorted(folder.glob("sha256:*")):
            if path.name not in held:
                archive.add(path, f"blobs/{path.name.replace(':', '/')}")
        archive.close()
        if process.stdin is not None:
            process.stdin.close()
    if process.returncode != 0:
        raise SystemExit(f"node {node} could not import the images")


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2:])
