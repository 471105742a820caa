"""The client of the Kubernetes API for the cluster that this process belongs to, or is pointed at.

What operator and agent have in common; each speaks JSON over it in its own way
(`cluster.kubernetes_api.client`, `agent.kubernetes_feed`).
"""

from __future__ import annotations

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration

from penstock.errors import PermanentError


async def api_client(kubeconfig: str | None = None, context: str | None = None) -> ApiClient:
    """Of the cluster that this pod is in, or that of the kubeconfig file, by its current context or the one
    that is named. PermanentError: neither is there.

    It retries nothing by itself.
    """
    configuration = Configuration()
    try:
        if kubeconfig:
            await kubernetes_config.load_kube_config(
                config_file=kubeconfig, context=context, client_configuration=configuration
            )
        else:
            kubernetes_config.load_incluster_config(client_configuration=configuration)
    except (kubernetes_config.ConfigException, OSError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account"
        raise PermanentError(f"there is no way to the Kubernetes API by {where}: {error}") from error
    configuration.retries = None
    return ApiClient(configuration)
