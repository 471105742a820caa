# The container images; the Makefile includes this. BASE_PYTHON and BASE_JAVA name the images they start from,
# DOCKER_HOST the engine that builds them.

IMAGE_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# Without the two, and without a registry, bases that e2e/cluster/base_image.sh made are taken.
BASE_PYTHON ?=
BASE_JAVA ?=

.PHONY: images
images: setup texts ## Build the container images: operator, worker, the word-count example
	@BASE_PYTHON='$(BASE_PYTHON)' BASE_JAVA='$(BASE_JAVA)' images/build.sh $(IMAGE_VERSION)
